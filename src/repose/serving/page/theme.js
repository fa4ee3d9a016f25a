/** Choose light or dark before anything is drawn: the user's choice, or the system's. */

{
  const KEY = "theme";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null; // a browser may refuse storage
  try { chosen = localStorage.getItem(KEY); } catch { /* the choice then lasts for this page only */ }

  const use = () => {
    root.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    const other = root.dataset.theme === "dark" ? "light" : "dark";
    const button = document.getElementById("theme");
    if (!button) return;
    button.textContent = other === "light" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${other} theme`);
  };

  dark.addEventListener("change", use);
  document.addEventListener("DOMContentLoaded", () => {
    use();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem(KEY, chosen); } catch { /* as above */ }
      use();
    });
  });
  use();
}
