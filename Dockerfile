# lmlab on a CPU:
#   docker build -t lmlab .
#   docker run --rm -v "$PWD:/work" lmlab train gpt2 book.txt -o runs/book --budget 2min
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD:/work" -e LMLAB_TOKEN=secret lmlab serve runs/book --host 0.0.0.0
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 LMLAB_CACHE=/tmp/lmlab
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
# The CPU build of PyTorch is a tenth of the size of the one for NVIDIA's GPUs. Name an index that has it:
# docker build --build-arg PIP_EXTRA_INDEX_URL=ADDRESS
ARG PIP_EXTRA_INDEX_URL=
RUN WHEEL="$(ls /tmp/wheels/lmlab-*.whl)" \
  && pip install --no-cache-dir --constraint /tmp/constraints.txt \
    "${WHEEL}[serve,vision,audio,music,eval,report,analysis]" \
  && pip check \
  && rm -rf /tmp/wheels /tmp/constraints.txt \
  && useradd --create-home --uid 1000 lmlab
USER 1000
WORKDIR /work
ENTRYPOINT ["lmlab"]
CMD ["--help"]
