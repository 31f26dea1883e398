# syntax=docker/dockerfile:1
# Two stages: the compiler and pip stay in the first, the second holds Python and one environment.
# The planner inside is the compiled form: the same source, in C.
ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python -m venv /opt/advisor
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY requirements.lock ./
# Only files whose hash is in the lock; wheels only, so nothing runs while installing.
RUN /opt/advisor/bin/pip install --require-hashes --only-binary :all: -r requirements.lock
RUN python -m venv /opt/tools && /opt/tools/bin/pip install "setuptools>=77" wheel "mypy[mypyc]>=1.16"
COPY pyproject.toml setup.py README.md ./
COPY app ./app
RUN PATH=/opt/tools/bin:$PATH TRAINJOB_ADVISOR_COMPILED=1 \
    pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
 && /opt/advisor/bin/pip install --no-deps --no-index /tmp/wheels/*.whl \
 && /opt/advisor/bin/python -c 'from app.planner import form; assert form() == "compiled", form()' \
 && /opt/advisor/bin/pip uninstall --yes pip \
 && python -m compileall -q /opt/advisor/lib
# What is inside, for scanners: CycloneDX.
COPY image ./image
RUN python image/sbom.py requirements.lock pyproject.toml > /opt/advisor/sbom.cdx.json

FROM python:${PYTHON}
# Nothing in the final image can install anything, and nothing in it belongs to the user that runs.
RUN rm -rf /usr/local/lib/python3.*/site-packages/pip* /usr/local/bin/pip* \
 && useradd --uid 65532 --user-group --no-create-home --shell /usr/sbin/nologin advisor
COPY --from=build /opt/advisor /opt/advisor
ENV PATH=/opt/advisor/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    TRAINJOB_ADVISOR_CERTIFICATE_DIR=/certificates
WORKDIR /
USER 65532:65532
EXPOSE 8443 8081
STOPSIGNAL SIGTERM
ENTRYPOINT ["trainjob-advisor"]
CMD ["serve"]
