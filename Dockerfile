# pyft beside PyTorch, for soft GPUs; with `--gpus all` of the container's runtime for real ones.
#   docker build -t pyft .
#   docker run --rm pyft                                    # pyft demo
#   docker run --rm -v "$PWD:/work" pyft run --gpus soft:1 -- python train.py
FROM python:3.11-slim-bookworm AS build
# Any g++ of this release of Debian will do.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm
RUN pip install --no-cache-dir torch==2.11.0
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels
RUN useradd --create-home --uid 10001 user
USER 10001
WORKDIR /work
ENTRYPOINT ["pyft"]
CMD ["demo"]
