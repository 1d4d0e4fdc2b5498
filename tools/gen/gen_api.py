"""Generate the C++ of the API proxy from proxy/api/*.toml.

`gen_api.py --api proxy/api --out BUILD/proxy/api` writes all sources there; `--docs FILE` writes the coverage page.
`--seeds FOLDER` writes what the fuzzer of dispatch begins with.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import api_records
import emit_client
import emit_docs
import emit_library
import emit_seeds
import emit_server
import emit_wire

OUTPUTS = {
    "object_types.h": emit_wire.emit_object_types,
    "call_ids.h": emit_wire.emit_call_ids,
    "names.cc": emit_wire.emit_names,
    "commands.h": emit_wire.emit_commands,
    "print_calls.cc": emit_wire.emit_printer,
    "client_stubs.cc": emit_client.emit_stubs,
    "unimplemented_stubs.cc": emit_client.emit_unimplemented,
    "entry_points.cc": emit_client.emit_entry_points,
    "proto_check.cc": emit_client.emit_proto_check,
    "exports.map": emit_client.emit_exports,
    "exports_nvml.map": lambda api: emit_client.emit_exports(api, "nvml"),
    "nvml_forward.cc": emit_client.emit_nvml_forward,
    "backend_table.h": emit_server.emit_table,
    "mock_table.h": emit_server.emit_mock,
    "dispatch.cc": emit_server.emit_dispatch,
    "handler_declarations.h": emit_server.emit_handler_declarations,
    "library_stubs.cc": emit_library.emit_stubs,
    "library_dispatch.cc": emit_library.emit_dispatch,
    "library_check.cc": emit_library.emit_check,
    "coverage.json": emit_docs.emit_json,
}
SEEDS = {"seeds.cc": emit_seeds.emit_seeds, "fakes.cc": emit_seeds.emit_fakes}


def write(
    folder: Path, outputs: dict[str, Callable[[api_records.Api], str]], api: api_records.Api
) -> None:
    """Write the outputs into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, emit in outputs.items():
        # What stays as it was keeps its time, and nothing that includes it is compiled again.
        file, text = folder / name, emit(api)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api", type=Path, default=Path(__file__).parents[2] / "proxy" / "api")
    parser.add_argument("--out", type=Path, help="folder of the generated sources")
    parser.add_argument("--docs", type=Path, help="write the coverage page there")
    parser.add_argument("--seeds", type=Path, help="folder of the sources for the fuzzer")
    args = parser.parse_args()
    try:
        api = api_records.load(args.api)
    except api_records.RecordError as error:
        raise SystemExit(f"gen_api: {error}") from None
    if args.out:
        write(args.out, OUTPUTS, api)
    if args.seeds:
        write(args.seeds, SEEDS, api)
    if args.docs:
        args.docs.write_text(emit_docs.emit_coverage(api))


if __name__ == "__main__":
    main()
