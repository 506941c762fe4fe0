# gapless on a machine of its own. What it runs is what README.md says, word for word: a test holds one against the other.
#
#   docker build -t gapless .           installs gapless and makes a first plan
#   docker build --target tests .       passes the tests, too
#   docker run --rm -v "$PWD:/plans" gapless gapless solve monet --graph unet --budget 0.6x -o step.json
FROM python:3.12-slim AS installed
COPY . /opt/gapless
WORKDIR /opt/gapless
RUN pip install --no-cache-dir ".[plot]"
WORKDIR /plans
RUN gapless solve fsdp --profile llama-8b --ranks 64 --ranks-per-node 8 --bandwidth 50Gbps --inner-bandwidth 300GB/s --memory 17GB -o plan.json
RUN gapless report plan.json -o plan.html
RUN gapless export plan.json --format fsdp2 -o wrapping.json

FROM installed AS tests
WORKDIR /opt/gapless
RUN pip install --no-cache-dir -e ".[test]" && pytest -n auto

FROM installed
