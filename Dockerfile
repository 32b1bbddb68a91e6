# clhist on a CPU by PoCL: docker build -t clhist . && docker run --rm clhist selftest --quick
FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends pocl-opencl-icd \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir "/src[image,plot]" && rm -rf /src
RUN useradd --create-home clhist
USER clhist
WORKDIR /home/clhist
# Debian's PoCL, which knows more processors than the one in PyOpenCL's wheels.
ENV OCL_ICD_VENDORS=/etc/OpenCL/vendors
ENTRYPOINT ["clhist"]
CMD ["info"]
