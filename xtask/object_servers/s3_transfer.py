"""Copies files into a bucket, or objects of a bucket into a folder, as fast as Amazon's client does.

s3_transfer.py ENDPOINT BUCKET upload|download PREFIX FOLDER, with the key in AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY. An upload takes the files of the folder whose names end with `.chunk`.

Prints one line, NAME=VALUE with tabs between:

- `seconds`: time of the transfers, without the start of this program;
- `synced_seconds`: the same with an fsync of each downloaded file and of the folder;
- `processor_seconds` and `memory_bytes`: processor time and peak memory of this process;
- `bytes` and `files`: what was copied;
- `client`: the client and its version.
"""

import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

FILES_AT_A_TIME = 4
PARTS_AT_A_TIME = 4
PART_BYTES = 8 * 1024 * 1024


def sync(path):
    """Waits until a file or a folder is on the device."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def peak_memory_bytes():
    """Returns the peak memory of this process. Only macOS counts in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main():
    endpoint, bucket, direction, prefix, folder = sys.argv[1:]
    connections = FILES_AT_A_TIME * (PARTS_AT_A_TIME + 1)
    config = Config(max_pool_connections=connections, s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)
    transfer = TransferConfig(
        multipart_threshold=PART_BYTES,
        multipart_chunksize=PART_BYTES,
        max_concurrency=PARTS_AT_A_TIME,
    )

    def upload(name):
        client.upload_file(os.path.join(folder, name), bucket, f"{prefix}/{name}", Config=transfer)

    def download(name):
        path = os.path.join(folder, name)
        client.download_file(bucket, f"{prefix}/{name}", path, Config=transfer)

    if direction == "upload":
        names = [name for name in sorted(os.listdir(folder)) if name.endswith(".chunk")]
        copy = upload
    else:
        os.makedirs(folder)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        names = [key[len(prefix) + 1 :] for key in keys]
        copy = download
    start = time.monotonic()
    with ThreadPoolExecutor(FILES_AT_A_TIME) as pool:
        # The results are read so that a failed transfer ends this program.
        list(pool.map(copy, names))
    copied = time.monotonic()
    paths = [os.path.join(folder, name) for name in names]
    if direction == "download":
        for path in [*paths, folder]:
            sync(path)
    synced = time.monotonic()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    line = {
        "seconds": copied - start,
        "synced_seconds": synced - start,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "memory_bytes": peak_memory_bytes(),
        "bytes": sum(os.path.getsize(path) for path in paths),
        "files": len(paths),
        "client": f"boto3 {boto3.__version__}",
    }
    print("\t".join(f"{name}={value}" for name, value in line.items()))


if __name__ == "__main__":
    main()
