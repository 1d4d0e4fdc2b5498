"""The scripted rename: README.md beside this file. Run once, in the root of the tree."""

# ruff: noqa
import re, subprocess, sys, fnmatch
from pathlib import Path


def ls():
    return subprocess.check_output(["git", "ls-files"], text=True).split("\n")[:-1]


GENERATED = {"docs/api-coverage.md"}
SKIP = lambda f: (
    f in GENERATED or f.endswith((".bin", ".png", ".txt", ".tsv", "LICENSE", ".gitignore"))
)


def match(f, globs):
    return any(fnmatch.fnmatch(f, g) for g in globs)


# ---- CUDA's own word "capture": files in which it means stream capture --------------------------
CUDA = [
    "softgpu/*",
    "proxy/client/*",
    "proxy/api/*.toml",
    "proxy/api/*.md",
    "proxy/ring/object_log.*",
    "proxy/ring/reader.cc",
    "proxy/server/handlers/*",
    "proxy/server/publish.cc",
    "proxy/server/session.h",
    "proxy/server/device.*",
    "tests/softgpu/*",
    "tests/e2e/programs/graph*",
    "tests/e2e/programs/callbacks.py",
    "tests/e2e/test_callbacks.py",
    "softgpu/README.md",
    "tests/e2e/programs/recovery_cases.py",
    "tests/wire/collective_marks_test.cc",
    "tests/wire/fuzz_backend.h",
    "tests/wire/copying_driver.h",
    "tools/gpu/measure/*",
    "tools/gpu/measurements.py",
    "docs/ops.md",
    "tools/gen/*",
    "tools/gpu/building.py",
    "tests/gen/*",
    "tests/e2e/test_recovery_graphs.py",
    "tests/e2e/test_programs.py",
]
# ... but these lines of those files mean a snapshot (regex on the line)
CUDA_LINES_MEM = {
    "softgpu/README.md": [r"pyft's captures"],
    "softgpu/api/extras_memory.cc": [r"."],
    "proxy/client/stats.cc": [r"writer\(\)\.captures\(\)", r"when its next cut is not captured"],
    "proxy/server/handlers/live_objects.h": [r"objects, for captures"],
    "proxy/server/handlers/module.cc": [r"."],
    "proxy/server/handlers/memory.cc": [r"."],
    "proxy/api/memory.toml": [r"\Z"],
    "tests/e2e/test_recovery_graphs.py": [r'"--protect"'],
    "softgpu/include/softgpu.h": [r"."],
    "tests/e2e/programs/callbacks.py": [r"\Z"],
}
# and in all other files these lines mean CUDA's capture
MEM_LINES_CUDA = [
    r"[Ss]tream[s]? capture",
    r"STREAM_CAPTURE",
    r"StreamCapture",
    r"StreamIsCapturing",
    r"capture_output",
    r"CaptureFixture",
    r"calls[_]?\.capturing|\bcapturing\b",
    r"captures a graph|a stream captures|stream that captures|is captured for a graph|[Ww]hile (a|the) \w+ captures\b",
    r"kOpenCapture",
    r"forget_capture",
    r"ring::kCaptured\b(?!;)",
    r"& kCaptured\b",
    r"kCaptureBegin|kCaptureEnd|CAPTURE_BEGIN|CAPTURE_END|CAPTURE_BEGIN",
    r"host_copies|bool captures\(Session",
    r"captures\(session",
    r"captures\(session_",
    r"open_captures",
    r"CUDA graph",
    r"CAPTURE_STATUS",
    r"captured graph|graph is captured|captured for a graph|capture a graph|While a stream captures|breaks the capture|a_captured_graph|whose_stream_captures|\"server/handlers.*capture|client/capture|its streams have come to their ends would break",
    r"BeginCapture|EndCapture|IsCapturing|CaptureMode|CaptureInfo",
    r"`capture-threads`|capture-threads",
    r"a_captured_graph|a_gate_asks_nothing",
    r"captured beside|capture_begins|graph capture|capture's end|a capture of the program|looks at streams would break|program's capture|const bool captured = header|if \(captured\) forget",
]
MEM_LINES_CUDA += [
    r"kCreates \| kDestroys \| (kCaptured|ring::kCaptured)|kDestroys \| kCaptured",
    r"captured call|captured function|M3 graphs|print\(.captured|named by what has been captured",
    r"kCreates \| ring::kDestroys \| ring::kCaptured",
    r"Parameters are those of the capture|a capture forbids|stream capture and graphs|A captured",
    r"captured and branching",
]
MEM_FILES_CUDA = [
    "softgpu/README.md",
    "proxy/server/recovery/host_copies.cc",
    "tests/e2e/programs/graph_steps.py",
    "docs/tracing.md",
]


def cap_words(s):
    s = re.sub(r"\bCaptured cuts\b", "Cuts with snapshots", s)
    s = re.sub(
        r"captur(e|es|ed|ing)\b",
        lambda m: {"e": "snapshot", "es": "snapshots", "ed": "snapshotted", "ing": "snapshotting"}[
            m[1]
        ],
        s,
    )
    s = re.sub(
        r"Captur(e|es|ed|ing)\b",
        lambda m: {"e": "Snapshot", "es": "Snapshots", "ed": "Snapshotted", "ing": "Snapshotting"}[
            m[1]
        ],
        s,
    )
    return s


IDENT = [  # exact identifiers first
    (r"\bCaptureOptions\b", "SnapshotOptions"),
    (r"\bcapture_options\b", "snapshot_options"),
    (r"\bclass Capture\b", "class Snapshotter"),
    (r"\bCapture::", "Snapshotter::"),
    (r"\bCapture\*", "Snapshotter*"),
    (r"server::Capture\b", "server::Snapshotter"),
    (r"optional<Capture>", "optional<Snapshotter>"),
    (r"\bCapture\(", "Snapshotter("),
    (r"std::optional<Snapshotter> capture\b", "std::optional<Snapshotter> snapshotter"),
    (
        r"std::optional<server::Snapshotter> capture\b",
        "std::optional<server::Snapshotter> snapshotter",
    ),
    (r"\bcapture_->", "snapshotter_->"),
    (r"\bcapture_ \?", "snapshotter_ ?"),
    (r"\bcapture_ =", "snapshotter_ ="),
    (r"Snapshotter\* capture_ = nullptr", "Snapshotter* snapshotter_ = nullptr"),
    (r"Snapshotter\* capture\b", "Snapshotter* snapshotter"),
    (r"snapshotter_ = capture;", "snapshotter_ = snapshotter;"),
    (r"\bcapture->", "snapshotter->"),
    (r"\bcapture\.(emplace|reset)", "snapshotter.\\1"),
    (r"\*capture\b", "*snapshotter"),
    (r"\bcapture\(\)->", "snapshotter()->"),
    (r"\bPYFT_SERVER_RECOVERY_CAPTURE_H_", "PYFT_SERVER_RECOVERY_SNAPSHOTTER_H_"),
    (r"part of Capture\b", "part of Snapshotter"),
    (r"server/recovery/capture\.h", "server/recovery/snapshotter.h"),
    (r"recovery/capture\.cc", "recovery/snapshotter.cc"),
    (r"recovery/capture_comparison\.cc", "recovery/snapshot_commit.cc"),
    (r"recovery/capture_end\.cc", "recovery/snapshot_end.cc"),
    (r"\bcapture_comparison\.cc", "snapshot_commit.cc"),
    (r"\bcapture_end\.cc", "snapshot_end.cc"),
    (r"recovery/\{store,capture\}", "recovery/{store,snapshotter}"),
    (r"'recovery/capture'", "'recovery/snapshotter'"),
    # messages
    (r"(?<!MessageKind::)\bkCaptured\b(?= = 32)", "kStreamCaptured"),
    (r"MessageKind::kCaptured\b", "MessageKind::kStaged"),
    (r"\bMessage\.CAPTURED\b", "Message.STAGED"),
    (r"^    CAPTURED = 9", "    STAGED = 9"),
    (r"^  kCaptured = 9", "  kStaged = 9"),
    (r"server     CAPTURED:", "server     STAGED:"),
    (r"events\.Message\.CAPTURED", "events.Message.STAGED"),
    (r"\bcalls_\.captured\b", "calls_.staged"),
    (r"\bcalls\.captured\b", "calls.staged"),
    (r"calls->captured\b", "calls->staged"),
    (r"\> captured;", "> staged;"),
    (r"\b(replicas|_replicas|_shares|shares|sharing)\.captured\(", "\\1.staged("),
    (r"\bself\._replicas\.captured\(", "self._replicas.staged("),
    (r"def captured\(self, id", "def staged(self, id"),
    (r"\(\"captured\", step", '("staged", step'),
    (r'!= "captured"', '!= "staged"'),
    (r'== "captured"', '== "staged"'),
    (r"\bpace_\.captured\(", "pace_.snapshot_taken("),
    (r"\bPace::captured\(", "Pace::snapshot_taken("),
    (r"void captured\(uint64_t cuts", "void snapshot_taken(uint64_t cuts"),
    (r"shared->captured\(seq\)", "shared->committed(seq)"),
    (r"communicators\.captured\(", "communicators.committed("),
    (r"Communicators::captured\(", "Communicators::committed("),
    (r"void captured\(uint64_t (cut|seq)", "void committed(uint64_t \\1"),
    (r"\bcommit_captured\b", "commit_snapshots"),
    (r"bool (Writer::)?captures\(\) const", "bool \\1takes_snapshots() const"),
    (r"writer\(\)\.captures\(\)", "writer().takes_snapshots()"),
    (r"!captures\(\)", "!takes_snapshots()"),
    (r"\bif \(captures\(\)\)", "if (takes_snapshots())"),
    (r"\bcaptured_cut\b", "snapshot_cut"),
    (r"\blast_captured_\b", "last_snapshot_"),
    (r"pyft_captured_cut", "pyft_snapshot_cut"),
    (r"\bkCapture\b", "kSnapshot"),
    (r"Protect\.CAPTURE", "Protect.SNAPSHOT"),
    (r"^    CAPTURE = 1", "    SNAPSHOT = 1"),
    (r"PYFT_SHARE_CAPTURES", "PYFT_SHARE_SNAPSHOTS"),
    (r"\bundisturbed_by_captures", "undisturbed_without_snapshots"),
    (r"capture_alone", "snapshot_alone"),
    (r"_of_captures", "_of_snapshots"),
    (r"capture_cost", "snapshot_cost"),
    (r"TIMED_CAPTURE", "TIMED_SNAPSHOT"),
    (r"capture-cost", "snapshot-cost"),
    (r"bench/capture\.py", "bench/snapshot.py"),
    (r"from capture import", "from snapshot import"),
    (r"\(capture\.py\)", "(snapshot.py)"),
    (r"test_recovery_captures", "test_recovery_snapshots"),
    (r"capture_test", "snapshot_test"),
    (r"'capture', 'put_off'", "'snapshot', 'put_off'"),
    (r"kCaptured$", "kStaged"),
    (
        r"in the store, which does not count yet( +)kCaptured",
        "in the store, which does not count yet\\1kStaged",
    ),
    (r"pace\.captured\(", "pace.snapshot_taken("),
    (r"last captured cut", "last snapshot"),
    (r"[Ee]ach captured cut", "each snapshot"),
    (r"a captured cut\b", "a snapshot"),
    (r"the captured cut\b", "the snapshot"),
    (r"captured cuts", "snapshots"),
    (r"captured cut\b", "snapshot"),
    (r"(?<=_)captured(?=_|\(|\))", "snapshotted"),
    (r"(?<=_)capture(?=_)", "snapshot"),
    (r"(?<=_)captures(?=_)", "snapshots"),
]
MOVES = [
    ("proxy/server/recovery/capture.h", "proxy/server/recovery/snapshotter.h"),
    ("proxy/server/recovery/capture.cc", "proxy/server/recovery/snapshotter.cc"),
    ("proxy/server/recovery/capture_comparison.cc", "proxy/server/recovery/snapshot_commit.cc"),
    ("proxy/server/recovery/capture_end.cc", "proxy/server/recovery/snapshot_end.cc"),
    ("tests/recovery/capture_test.cc", "tests/recovery/snapshot_test.cc"),
    ("bench/capture.py", "bench/snapshot.py"),
    ("tests/e2e/test_recovery_captures.py", "tests/e2e/test_recovery_snapshots.py"),
]


def snapshots():
    for f in ls():
        if SKIP(f) or not Path(f).is_file():
            continue
        text = Path(f).read_text()
        if "aptur" not in text and "CAPTUR" not in text:
            continue
        cuda = match(f, CUDA) or f in MEM_FILES_CUDA
        keep = [re.compile(r) for r in CUDA_LINES_MEM.get(f, [])]
        out = []
        for line in text.split("\n"):
            is_mem = (
                any(k.search(line) for k in keep)
                if cuda
                else not any(re.search(r, line) for r in MEM_LINES_CUDA)
            )
            if is_mem:
                for a, b in IDENT:
                    line = re.sub(a, b, line)
                line = cap_words(line)
            out.append(line)
        new = "\n".join(out)
        if new != text:
            Path(f).write_text(new)
    for a, b in MOVES:
        if Path(a).exists():
            subprocess.check_call(["git", "mv", a, b])


# ---- the other terms: (globs, exclude globs, [(regex, replacement)]) ----------------------------
SERVER = ["proxy/server/*", "tests/recovery/*", "tests/wire/*"]
CPP = ["*.cc", "*.h"]
DOCS = ["docs/*.md", "*.md"]
RULES = [
    # two-phase commit
    (
        ["*"],
        ["softgpu/*", "flexccl/*", "tests/softgpu/*"],
        [
            (r"\bkCaptured\b", "kStreamCaptured"),
            (r"\bPYFT_KEEPER_PID\b", "PYFT_SUPERVISOR_PID"),
            (r"\bhold_back\b", "commit_output"),
            (r"\bstand_still\b", "quiesce"),
            (r"Snapshotter::keep_shadows", "Snapshotter::keep_pre_images"),
            (r"Loud stubs", "Unimplemented stubs"),
            (r"\bkHeld\b", "kPrepared"),
            (r"\bMessage\.HELD\b", "Message.PREPARED"),
            (r"^    HELD = 13", "    PREPARED = 13"),
            (r"\bkSettled\b", "kCommit"),
            (r"\bMessage\.SETTLED\b", "Message.COMMIT"),
            (r"^    SETTLED = 106", "    COMMIT = 106"),
            (r"\bkDropped\b", "kAbort"),
            (r"\bMessage\.DROPPED\b", "Message.ABORT"),
            (r"^    DROPPED = 108", "    ABORT = 108"),
            (r"\bkWithdraw\b", "kDecisionRequest"),
            (r"\bMessage\.WITHDRAW\b", "Message.DECISION_REQUEST"),
            (r"^    WITHDRAW = 15", "    DECISION_REQUEST = 15"),
            (r"\bkShort\b(?= = 16)", "kMemoryPressure"),
            (r"MessageKind::kShort\b", "MessageKind::kMemoryPressure"),
            (r"\bMessage\.SHORT\b", "Message.MEMORY_PRESSURE"),
            (r"^    SHORT = 16", "    MEMORY_PRESSURE = 16"),
            (r"\bkRoom\b", "kMemoryFreed"),
            (r"\bMessage\.ROOM\b", "Message.MEMORY_FREED"),
            (r"^    ROOM = 112", "    MEMORY_FREED = 112"),
            (r"`kDrop`", "`kAbort`"),
            (r"cut\.after_join", "cut.after_drain"),
            (r"lend\.before_answer", "export.before_answer"),
        ],
    ),
    (
        [
            "pyft/recovery/rollback.py",
            "pyft/recovery/together.py",
            "tests/unit/recovery/test_rollback.py",
            "tests/unit/recovery/model_together.py",
            "tests/unit/recovery/test_model_together.py",
        ],
        [],
        [
            (r"\bSettled\b", "Commit"),
            (r"\bDropped\b", "Abort"),
            (r"\bSETTLED\b", "COMMIT"),
            (r"\bDROPPED\b", "ABORT"),
            (r"\bHELD\b", "PREPARED"),
            (r"\b_settle\b", "_commit"),
        ],
    ),
    (
        [
            "pyft/recovery/replicas.py",
            "pyft/agent/comparison.py",
            "tests/unit/recovery/test_replicas.py",
            "tests/unit/recovery/model_shares.py",
            "tests/unit/recovery/test_peers.py",
        ],
        [],
        [
            (r"\bSettled\b", "Agreed"),
            (r"\bsettled\b", "agreed"),
        ],
    ),
    (
        [
            "pyft/recovery/shares.py",
            "pyft/agent/sharing.py",
            "tests/unit/recovery/test_shares.py",
            "tests/unit/recovery/test_sharing.py",
            "tests/unit/recovery/model_*.py",
        ],
        [],
        [
            (r"\bDrop\(", "Abort("),
            (r"\bDrop\b(?=[,\s|\]:)])", "Abort"),
            (r"^class Drop\b", "class Abort"),
            (r"\bSETTLED\b", "COMMIT"),
            (r"\bDROPPED\b", "ABORT"),
            (r"\bHELD\b", "PREPARED"),
            (r"\bWITHDRAW\b", "DECISION_REQUEST"),
            (r"shares\.withdraw\b", "shares.decide_now"),
            (r"_shares\.withdraw\b", "_shares.decide_now"),
            (r"def withdraw\(", "def decide_now("),
            (r'"withdraw"', '"decision-request"'),
        ],
    ),
    (
        [
            "pyft/recovery/*.py",
            "pyft/agent/sh*.py",
            "pyft/agent/servers.py",
            "tests/unit/recovery/*.py",
        ],
        ["tests/unit/recovery/test_adoption.py"],
        [
            (r"\.held\b(?!\()", ".prepared"),
            (r"\bheld_(table|entry)\b", "prepared_\\1"),
            (r"^(\s+)held: int", "\\1prepared: int"),
            (r"\bdef held\(", "def prepared("),
            (r"shares\.held\(", "shares.prepared("),
            (r"self\._shares\.held\b", "self._shares.prepared"),
            (r'"held"', '"prepared"'),
            (r"held: bool = True", "prepared: bool = True"),
            (r"held=False", "prepared=False"),
            (r"step if held else", "step if prepared else"),
            (r"\bheld = (not|event)", "prepared = \\1"),
            (r"int\(held\)", "int(prepared)"),
            (r"if held:", "if prepared:"),
            (r"if held else self", "if prepared else self"),
            (r"\*held\}", "*prepared}"),
            (r"^(\s+)held = \(\) if", "\\1prepared = () if"),
            (r"held, held_entry", "prepared, prepared_entry"),
            (r"\bid, line, entry, held\b", "id, line, entry, prepared"),
            (r"entry, held, prepared_entry", "entry, prepared, prepared_entry"),
            (r"Standing\(line, entry, held,", "Standing(line, entry, prepared,"),
        ],
    ),
    # the snapshotter
    (
        SERVER,
        ["tests/wire/self_test_test.cc", "proxy/server/handlers/*"],
        [
            (r"\bcalls(_\.|\.|->)held\b", "calls\\1prepared"),
            (r"seq\)> held;", "seq)> prepared;"),
            (r"\btell_held\b", "tell_prepared"),
            (r"\btold_held_\b", "told_prepared_"),
            (r"\bbool held, uint64_t seq", "bool prepared, uint64_t seq"),
            (r"step, held, seq\)", "step, prepared, seq)"),
            (
                r"std::vector<uint64_t> held, withdrawn",
                "std::vector<uint64_t> prepared, decision_requests",
            ),
            (r"(zero|one|server)\.held\b", "\\1.prepared"),
            (r"^(\s+)held\.push_back", "\\1prepared.push_back"),
            (r"\bwithdrawn\b", "decision_requests"),
            (r"\bon_withdraw\b", "on_decision_request"),
            (r"\bcalls(_\.|\.|->)withdraw\b", "calls\\1request_decision"),
            (r"step\)> withdraw;", "step)> request_decision;"),
            (r"\bwithdraw\(\)", "force_decision()"),
            (r"Snapshotter::withdraw\b", "Snapshotter::force_decision"),
            (r"\bis_settled\b", "is_agreed"),
            (r"(options|options_|decided|server|zero|one)(\.|->)settled\b", "\\1\\2agreed"),
            (r"\* settled = nullptr", "* agreed = nullptr"),
            (r"&settled\b", "&agreed"),
            (r"> settled\{0\}", "> agreed{0}"),
            (r"^(\s+)settled = committed", "\\1agreed = committed"),
            (r"decided->settled", "decided->agreed"),
            (r"(options|options_|decided|server|zero|one)(\.|->)dropped\b", "\\1\\2aborted"),
            (r"\* dropped = nullptr", "* aborted = nullptr"),
            (r"&dropped\b", "&aborted"),
            (r"committed\{0\}, dropped\{0\}", "committed{0}, aborted{0}"),
            (r"const bool dropped =", "const bool aborted ="),
            (r"\(!dropped &&", "(!aborted &&"),
            (r"raise\(dropped \?", "raise(aborted ?"),
            (r"\bis_dropped\b", "is_aborted"),
            (r"\bdrop_waiting\b", "abort_prepared"),
            (r"decided\.dropped", "decided.aborted"),
            (r"\bagrees\(\)", "is_coordinated()"),
            (r"\bset_hold_back\b", "set_commit_output"),
            (r"\bhold_back_\b", "commit_output_"),
            (r"\bhold_back\b", "commit_output"),
            (r"'put_off'", "'deferred'"),
            (r"\bis_put_off\b", "is_deferred"),
            (r"\bput_off_\b", "deferred_"),
            (r"\bputs_off\b", "defers"),
            (r"\bput_off\b", "defer"),
            (r"\bput off\b", "deferred"),
            (r"\bmake_up_held\b", "run_deferred_locked"),
            (r"\bmake_up\b", "run_deferred"),
            (r"made up for", "made in the end"),
            (r"\bgo_on_held\b", "poll_locked"),
            (r"\bgo_on\(", "poll("),
            (r"\bgives_way\b", "admit"),
            (r"\bleave_out\b", "skip"),
            (r"\bweigh\b", "account"),
            (r"Snapshotter::settle\b", "Snapshotter::finish_copies"),
            (r"^(\s+)settle\(\);", "\\1finish_copies();"),
            (r"\) settle\(\);", ") finish_copies();"),
            (r"void settle\(\)", "void finish_copies()"),
            (r"\bstand_still\b", "quiesce"),
            (r"\bStood\b", "Quiesced"),
            (r"\bstood\b", "quiesced"),
            (r"\bcomes_to_rest\b", "is_quiescent"),
            (r"Snapshotter::join\b", "Snapshotter::drain"),
            (r"std::string join\(\)", "std::string drain()"),
            (r"problem = join\(\)", "problem = drain()"),
            (r"\bjoin_(ns|timeout_ns|limit_ns)\b", "drain_\\1"),
            (r"\bis_delivered\b", "is_acknowledged"),
            (r"\bdelivered_\b", "acknowledged_"),
            (r"\bcalls(_\.|\.|->)delivered\b", "calls\\1acknowledged"),
            (r"cut\)> delivered;", "cut)> acknowledged;"),
            (r"\bcalls(_\.|\.|->)crowded\b", "calls\\1log_pressure"),
            (r"> crowded;", "> log_pressure;"),
            (r"\bcrowded\(", "log_pressure("),
            (r"\bcrowded\b", "log_pressure"),
            (r"\bis_patient\b", "may_wait"),
            (r"\blook_again_ns_\b", "next_look_ns_"),
            (r"\bshow_pace\b", "show_interval"),
            (r"\bpace_\b", "interval_"),
            (r"\bPace\b", "Interval"),
            (r"recovery/pace\.", "recovery/interval."),
            (r"\bpace\.", "interval."),
            (r"\bPYFT_SERVER_RECOVERY_PACE_H_", "PYFT_SERVER_RECOVERY_INTERVAL_H_"),
            (r"\bpace\b(?=[({])", "interval"),
            (r"\bkeep_shadows\b", "keep_pre_images"),
            (r"\bexpect_shadows\b", "expect_pre_images"),
            (r"\bsaid_shadows_\b", "said_pre_images_"),
            (r"\bShadows\b", "PreImages"),
            (r"\bshadows_\b", "pre_images_"),
            (r"recovery/shadows\.", "recovery/pre_images."),
            (r"\bPYFT_SERVER_RECOVERY_SHADOWS_H_", "PYFT_SERVER_RECOVERY_PRE_IMAGES_H_"),
            (r"\bshadows\b", "pre-images"),
        ],
    ),
    (
        ["proxy/*", "pyft/*", "bench/*", "tools/*", "tests/*", "docs/*"],
        ["tests/flexccl/*", "tests/softgpu/*", "proxy/api/*.toml"],
        [
            (r"\bjoin_ns\b", "drain_ns"),
            (r"\bpeer_memory\.(h|cc)", "peer_import.\\1"),
            (r"\bPeerMemory\b", "PeerImport"),
            (r"\blending_memory\.(h|cc)", "peer_export.\\1"),
            (r"\bLendingMemory\b", "PeerExport"),
            (r"\bother_stores\.(h|cc)", "remote_stores.\\1"),
            (r"\bOtherStores\b", "RemoteStores"),
            (r"PYFT_SERVER_RECOVERY_PEER_MEMORY_H_", "PYFT_SERVER_RECOVERY_PEER_IMPORT_H_"),
            (r"PYFT_SERVER_RECOVERY_LENDING_MEMORY_H_", "PYFT_SERVER_RECOVERY_PEER_EXPORT_H_"),
            (r"PYFT_SERVER_RECOVERY_OTHER_STORES_H_", "PYFT_SERVER_RECOVERY_REMOTE_STORES_H_"),
            (r"\bis_elsewhere\b", "is_remote"),
            (r"\bcalls(_\.|\.|->)elsewhere\b", "calls\\1remote"),
            (r"problem\)> elsewhere;", "problem)> remote;"),
            (r"\bLastingCommunicators\b", "RepairedCommunicators"),
            (r"\bSharedCommunicators\b", "RebuiltCommunicators"),
            (r"\bCommunicatorKeeper\b", "CommunicatorRecovery"),
            (r"\bshared_communicators\.(h|cc)", "rebuilt_communicators.\\1"),
            (r"SHARED_COMMUNICATORS_H_", "REBUILT_COMMUNICATORS_H_"),
            (r"\bput_off_test\b", "deferred_test"),
            (r"'put_off'", "'deferred'"),
            (r"\bpace\.(h|cc)\b", "interval.\\1"),
            (r"recovery/pace\b", "recovery/interval"),
            (r"\bshadows\.(h|cc)\b", "pre_images.\\1"),
            (r"recovery/shadows\b", "recovery/pre_images"),
            (r"\bShadowsFake\b", "PreImagesFake"),
        ],
    ),
    (
        ["proxy/*", "pyft/*", "bench/*", "tools/*", "tests/*", "docs/*", "*.md"],
        ["tests/softgpu/*", "softgpu/*"],
        [
            (r"\bcommitted recovery point\b", "committed snapshot"),
            (r"\brecovery points\b", "committed snapshots"),
            (r"\brecovery point\b", "committed snapshot"),
            (r"\bRecovery point\b", "Committed snapshot"),
            (r"\bRecoveryPoint\b", "StoredSnapshot"),
        ],
    ),
    # supervisor
    (
        ["pyft/*", "tests/*", "docs/*", "bench/*", "*.md", "proxy/server/main.cc", "tools/*"],
        ["tests/flexccl/*"],
        [
            (r"\bkeeper_link\b", "supervisor_link"),
            (r"\bKeeperLink\b", "SupervisorLink"),
            (r"agent/keeper\.py", "agent/supervisor.py"),
            (r"pyft\.agent\.keeper\b", "pyft.agent.supervisor"),
            (r"\bkeeper\.py\b", "supervisor.py"),
            (r"keeper-fd", "supervisor-fd"),
            (r"keeper_fd", "supervisor_fd"),
            (
                r"\b[Kk]eepers?\b",
                lambda m: {
                    "keeper": "supervisor",
                    "keepers": "supervisors",
                    "Keeper": "Supervisor",
                    "Keepers": "Supervisors",
                }[m[0]],
            ),
            (r"\b_keeper\b", "_supervisor"),
            (r"\bkeeper_", "supervisor_"),
            (r"_keeper\b", "_supervisor"),
            (r"_keeper_", "_supervisor_"),
            (r"(?<=[a-z])Keeper\b", "Supervisor"),
            (r"\bLegacy\b", "Handover"),
            (r"\blegacy\b(?! stream| default)", "handover"),
        ],
    ),
    # flexccl
    (
        ["flexccl/*", "tests/flexccl/*", "proxy/collectives/*", "proxy/backend/*"],
        ["flexccl/nccl_engine/*", "tests/flexccl/nccl_engine/*"],
        [
            (r"core/keeper\.(h|cc)", "core/reclaimer.\\1"),
            (r"'core/keeper", "'core/reclaimer"),
            (r"\bKeeper\b", "Reclaimer"),
            (r"\bkeeper\b", "reclaimer"),
            (r"CORE_KEEPER_H_", "CORE_RECLAIMER_H_"),
            (r"core/desk\.(h|cc)", "core/query_server.\\1"),
            (r"'core/desk", "'core/query_server"),
            (r"\bDesk\b", "QueryServer"),
            (r"CORE_DESK_H_", "CORE_QUERY_SERVER_H_"),
            (r"core/board\.(h|cc)", "core/membership_log.\\1"),
            (r"'core/board", "'core/membership_log"),
            (r"\bBoard\b", "MembershipLog"),
            (r"CORE_BOARD_H_", "CORE_MEMBERSHIP_LOG_H_"),
            (r"core/runner\.(h|cc)", "core/operation_runner.\\1"),
            (r"'core/runner", "'core/operation_runner"),
            (r"\bRunner\b", "OperationRunner"),
            (r"CORE_RUNNER_H_", "CORE_OPERATION_RUNNER_H_"),
            (r"core/history\.(h|cc)", "core/retention_buffer.\\1"),
            (r"'core/history", "'core/retention_buffer"),
            (r"\bHistory\b", "RetentionBuffer"),
            (r"CORE_HISTORY_H_", "CORE_RETENTION_BUFFER_H_"),
            (r"core/records(_append|_replay)?\.(h|cc)", "core/operation_log\\1.\\2"),
            (r"'core/records", "'core/operation_log"),
            (r"CORE_RECORDS_H_", "CORE_OPERATION_LOG_H_"),
            (r"\bRecords\b(?=(::|[&*>({]| [a-z_]+[;,)({=]|;| records| \{|, ))", "OperationLog"),
            (
                r"(?<=class )Records\b|(?<=struct )Records\b|(?<=~)Records\b|(?<=<)Records\b|(?<=:)Records(?=\()",
                "OperationLog",
            ),
            (r"core/contents\.(h|cc)", "core/content_store.\\1"),
            (r"'core/contents", "'core/content_store"),
            (r"CORE_CONTENTS_H_", "CORE_CONTENT_STORE_H_"),
            (r"\bContents\b(?=(::|[&*>({]| [a-z_]+[;,)({=]|;| \{))", "ContentStore"),
            (r"(?<=class )Contents\b|(?<=~)Contents\b|(?<=<)Contents\b", "ContentStore"),
            (r"\bnew Contents\b", "new ContentStore"),
            (r"\bStandpoint\b", "LogPosition"),
            (r"\bstandpoint\b", "position_now"),
            (r"\bRetentionBuffer::News\b", "RetentionBuffer::MembershipUpdate"),
            (r"\bexchange_news\b", "exchange_membership"),
            (r"\bnews_for\b", "membership_for"),
            (r"\bNews\b", "MembershipUpdate"),
            (r"(?<=class )News\b|(?<=struct )News\b|(?<=<)News\b", "MembershipUpdate"),
        ],
    ),
    # stubs
    (
        ["proxy/*", "tools/*", "softgpu/*", "docs/*", "tests/*"],
        ["docs/api-coverage.md"],
        [
            (r"\bclient/loud\.(h|cc)", "client/unimplemented.\\1"),
            (r"'loud\.cc'", "'unimplemented.cc'"),
            (r"\bloud stub", "unimplemented stub"),
            (r"\bloud\(", "unimplemented("),
            (r"CLIENT_LOUD_H_", "CLIENT_UNIMPLEMENTED_H_"),
            (r"one loud stub", "one unimplemented stub"),
        ],
    ),
]
MOVES2 = [
    ("proxy/server/recovery/pace", "proxy/server/recovery/interval"),
    ("proxy/server/recovery/shadows", "proxy/server/recovery/pre_images"),
    ("proxy/server/recovery/peer_memory", "proxy/server/recovery/peer_import"),
    ("proxy/server/recovery/lending_memory", "proxy/server/recovery/peer_export"),
    ("proxy/server/recovery/other_stores", "proxy/server/recovery/remote_stores"),
    ("proxy/server/recovery/shared_communicators", "proxy/server/recovery/rebuilt_communicators"),
    ("proxy/client/loud", "proxy/client/unimplemented"),
    ("tests/recovery/put_off_test", "tests/recovery/deferred_test"),
    ("flexccl/core/keeper", "flexccl/core/reclaimer"),
    ("flexccl/core/desk", "flexccl/core/query_server"),
    ("flexccl/core/board", "flexccl/core/membership_log"),
    ("flexccl/core/runner", "flexccl/core/operation_runner"),
    ("flexccl/core/history", "flexccl/core/retention_buffer"),
    ("flexccl/core/records", "flexccl/core/operation_log"),
    ("flexccl/core/records_append", "flexccl/core/operation_log_append"),
    ("flexccl/core/records_replay", "flexccl/core/operation_log_replay"),
    ("flexccl/core/contents", "flexccl/core/content_store"),
    ("pyft/agent/keeper", "pyft/agent/supervisor"),
    ("pyft/agent/keeper_link", "pyft/agent/supervisor_link"),
]


def terms():
    for globs, exclude, pairs in RULES:
        for f in ls():
            if SKIP(f) or not Path(f).is_file() or not match(f, globs) or match(f, exclude):
                continue
            text = Path(f).read_text()
            new = text
            for a, b in pairs:
                new = re.sub(a, b, new, flags=re.M)
            if new != text:
                Path(f).write_text(new)
    for a, b in MOVES2:
        for ext in (".h", ".cc", ".py"):
            if Path(a + ext).exists():
                subprocess.check_call(["git", "mv", "-k", a + ext, b + ext])


if __name__ == "__main__":
    snapshots()
    terms()
