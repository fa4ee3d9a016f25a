# Serves an export to ONNX, or the model that is put at /models; for run directories themselves (torch) build with
#   --build-arg EXTRAS=serve,train,fast --build-arg PIP_EXTRA_INDEX_URL=the index of PyTorch's CPU builds (else gigabytes for GPUs)
#
#   repose export runs/mine --to onnx --out models/mine
#   docker build --tag repose .
#   docker run --stop-timeout 30 --read-only --tmpfs /tmp --volume "$PWD/models:/models:ro" --publish 127.0.0.1:5000:5000 repose /models/mine
FROM python:3.12-slim AS build
ARG EXTRAS=serve,runtime
ARG PIP_EXTRA_INDEX_URL
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv --without-pip /opt/repose \
    && pip --python /opt/repose/bin/python install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.12-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin repose
COPY --from=build /opt/repose /opt/repose
ENV PYTHONDONTWRITEBYTECODE=1 REPOSE_HOME=/tmp/repose LT_HOST=0.0.0.0 LT_PORT=5000 LT_REQ_LIMIT=300
USER 10001:10001
WORKDIR /tmp
VOLUME ["/models"]
EXPOSE 5000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["/opt/repose/bin/python", "-c", "import os; from urllib.request import urlopen; urlopen(f'http://127.0.0.1:{os.environ[\"LT_PORT\"]}/health/ready', timeout=2)"]
ENTRYPOINT ["/opt/repose/bin/repose", "serve"]
CMD ["/models"]
