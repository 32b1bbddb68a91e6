# clhist on a CPU by PoCL: docker build -t clhist . && docker run --rm clhist selftest --quick
FROM python:3.12-slim-bookworm
# Any version of bookworm's PoCL 3.1 will do, and a pinned one would not be there after Debian's next update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends pocl-opencl-icd \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir "/src[image,plot]" && rm -rf /src
RUN useradd --create-home --uid 1000 clhist
USER 1000
WORKDIR /home/clhist
# Debian's PoCL, which knows more processors than the one in PyOpenCL's wheels.
ENV OCL_ICD_VENDORS=/etc/OpenCL/vendors
ENTRYPOINT ["clhist"]
CMD ["info"]
