"""Exchanges Bloom filters of Parquet files with DuckDB, in both directions.

    python parquet_exchange.py UMBEL FOLDER

UMBEL is the program that is tested, FOLDER an empty folder to work in. The last line counts passed,
failed and skipped checks.
"""

import subprocess
import sys
from pathlib import Path

import duckdb

KEYS = 10_000
# Largest share of absent keys that may pass a filter designed for one in a hundred.
MOST_PASSING = 0.03


def lines(word, count=KEYS):
    return [f"{word}/{number:06}/ü" for number in range(count)]


def quoted(path):
    return str(path).replace("'", "''")


class Exchange:
    def __init__(self, umbel, folder):
        self.umbel, self.folder = umbel, folder
        self.passed = self.failed = 0

    def check(self, what, holds, seen):
        self.passed += bool(holds)
        self.failed += not holds
        if not holds:
            print(f"{what}: {seen}")

    def run(self, *words):
        done = subprocess.run(
            [self.umbel, "filter", *map(str, words)], capture_output=True, text=True
        )
        if done.returncode > 1 or "panicked" in done.stderr:
            raise SystemExit(f"`filter {words}` failed: {done.stderr}")
        return done.stdout

    def write_lines(self, name, all_lines):
        path = self.folder / name
        path.write_bytes("".join(line + "\n" for line in all_lines).encode())
        return path

    def parquet_file(self, keys):
        """Writes a Parquet file with a column of keys; returns the position of the column's filter."""
        path = self.folder / "theirs.parquet"
        keys = self.write_lines("keys", keys)
        duckdb.execute(
            f"""COPY (SELECT key FROM read_csv('{quoted(keys)}', header = false, delim = '\t',
                quote = '', columns = {{'key': 'VARCHAR'}}), range(3))
                TO '{quoted(path)}' (FORMAT parquet, ROW_GROUP_SIZE 122880, DICTIONARY_SIZE_LIMIT 100000)"""
        )
        [(offset, length)] = duckdb.execute(
            f"SELECT bloom_filter_offset, bloom_filter_length FROM parquet_metadata('{quoted(path)}')"
        ).fetchall()
        if offset is None:
            raise SystemExit("DuckDB wrote no filter")
        return path, offset, length

    def excluded(self, path, key):
        """Whether DuckDB finds that the file's filter excludes the key."""
        [(answer,)] = duckdb.execute(
            "SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe(?, 'key', ?)",
            [str(path), key],
        ).fetchall()
        return answer

    def theirs_to_ours(self):
        """Checks that a filter of DuckDB has every key, and few absent ones."""
        path, offset, length = self.parquet_file(lines("there"))
        section = path.read_bytes()[offset : offset + length]
        theirs = self.folder / "theirs.filter"
        theirs.write_bytes(section)
        there, absent = self.folder / "keys", self.write_lines("absent", lines("absent"))
        found = int(self.run("check", "-c", theirs, there))
        self.check("keys of DuckDB's filter that are found in it", found == KEYS, found)
        passing = int(self.run("check", "-c", theirs, absent))
        self.check("absent keys that pass it", passing < MOST_PASSING * KEYS, passing)
        return path, offset, section

    def ours_to_theirs(self, path, offset, section):
        """Checks that a filter of the same keys and size is identical. Then DuckDB reads a filter
        of ours with other keys in the place of its own."""
        bits = 8 * (len(section) - len(section) % 32) / KEYS
        build = ("build", "--kind", "parquet", "--bits-per-key", bits, "-o")
        same = self.folder / "same.filter"
        self.run(*build, same, self.folder / "keys")
        self.check("our filter of the same keys is DuckDB's", same.read_bytes() == section, len(section))
        others = lines("other")
        other = self.folder / "other.filter"
        self.run(*build, other, self.write_lines("others", others))
        ours = other.read_bytes()
        self.check("it is as long", len(ours) == len(section), (len(ours), len(section)))
        whole = bytearray(path.read_bytes())
        whole[offset : offset + len(section)] = ours
        patched = self.folder / "ours.parquet"
        patched.write_bytes(whole)
        lost = [key for key in others[::50] if self.excluded(patched, key)]
        self.check("keys of ours that DuckDB does not find", not lost, lost)
        former = [key for key in lines("there")[::50] if not self.excluded(patched, key)]
        most = MOST_PASSING * KEYS / 50
        self.check("keys that are no longer in it and pass", len(former) <= most, former)


def main():
    umbel, folder = sys.argv[1:]
    exchange = Exchange(umbel, Path(folder))
    exchange.ours_to_theirs(*exchange.theirs_to_ours())
    print(f"{exchange.passed} passed, {exchange.failed} failed, 0 skipped")
    sys.exit(exchange.failed > 0)


main()
