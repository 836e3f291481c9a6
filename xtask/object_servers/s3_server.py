"""Prepares an S3 server that another program runs: waits for it, and creates a bucket.

s3_server.py ENDPOINT BUCKET, with the key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""

import sys
import time

import boto3
from botocore.config import Config

SECONDS_MAX = 60


def main():
    endpoint, bucket = sys.argv[1:]
    config = Config(retries={"max_attempts": 1}, connect_timeout=2, s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)
    end = time.monotonic() + SECONDS_MAX
    while True:
        try:
            buckets = client.list_buckets()["Buckets"]
            if all(found["Name"] != bucket for found in buckets):
                client.create_bucket(Bucket=bucket)
            # A server that can store takes a first object.
            client.put_object(Bucket=bucket, Key="first", Body=b"x")
            client.delete_object(Bucket=bucket, Key="first")
            return
        except Exception as error:
            if time.monotonic() > end:
                sys.exit(f"{endpoint}: {error}")
            time.sleep(0.5)


if __name__ == "__main__":
    main()
