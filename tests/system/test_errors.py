"""Errors and their messages."""

import pytest

from repose.system.errors import OUT_OF_MEMORY, MissingExtraError, ReposeError, naming_extras, user_message


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_memory_that_runs_out_is_one_sentence(error: Exception) -> None:
    assert user_message(error) == (OUT_OF_MEMORY, 1)


def test_a_missing_library_is_an_error_of_ours_that_names_its_extra() -> None:
    @naming_extras()
    def needs(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    with pytest.raises(MissingExtraError) as caught:
        needs("torch.nn")
    assert str(caught.value) == "this needs torch.nn: pip install 'repose-nmt[train]'"
    assert isinstance(caught.value, ReposeError)
    assert isinstance(caught.value, ImportError)
    assert user_message(caught.value) == (str(caught.value), 2)
    with pytest.raises(ModuleNotFoundError, match="somebody_elses"):
        needs("somebody_elses")
