#include "server/handlers/host_copies.h"

#include <cstring>

#include "checkpoint/digest/digest.h"
#include "ring/completion.h"
#include "server/handlers/scratch.h"

namespace pyft::server {

namespace {

using ring::JournalKind;
using ring::JournalRecord;

const std::byte* bytes_at(uint64_t address) {
  return reinterpret_cast<const std::byte*>(address);
}

// A stream that captures only writes down: what its graph copies is read and written at launches.
bool captures(Session& session, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto query = session.backend().cuStreamIsCapturing;
  return query && query(stream, &status) == 0 && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void compare_told(checkpoint::Recovery& recovery, uint64_t seq, uint16_t call,
                  JournalRecord& before, const std::byte* now) {
  const auto compare = recovery.audits() ? checkpoint::compare_last : checkpoint::compare_result;
  auto difference = compare(before, {now, before.bytes}, checkpoint::digest(now, before.bytes, 0));
  if (!difference) return recovery.agreed();
  difference->seq = seq;
  difference->call = call;
  recovery.differed(*difference);
}

}  // namespace

void require_kept(Session& session, uint64_t seq, const char* what) {
  if (!session.recovery().replaying() || !session.recovery().journal().lost(seq)) return;
  session.recovery().fail(
      ring::FaultKind::kUnrecoverable, 0,
      "what entry [" + std::to_string(seq) + "] " + what + " was not kept: the journal was full");
}

bool in_client_memory(Session& session, uint64_t address, uint64_t bytes) {
  const ring::Channel& channel = session.channel();
  const auto bounce = reinterpret_cast<uint64_t>(channel.bounce());
  return session.in_pinned(address, bytes) ||
         (bounce && address >= bounce && address - bounce < channel.bounce_bytes());
}

uint64_t journaled_source(Session& session, const EntryHeader& header, uint64_t index,
                          uint64_t source, uint64_t bytes, CUstream stream) {
  checkpoint::Journal& journal = session.recovery().journal();
  if (!journal.exists() || captures(session, stream)) return source;
  JournalRecord* record = journal.find(header.seq, index, JournalKind::kSource);
  if (record && record->bytes == bytes && record->filled.load())
    return reinterpret_cast<uint64_t>(checkpoint::Journal::data(record));
  if (!record) require_kept(session, header.seq, "read from pinned memory");
  if (!record) record = journal.add(header.seq, index, JournalKind::kSource, bytes, bytes);
  if (!record) return source;
  session.on_stream(stream, [record, source, bytes] {
    std::memcpy(checkpoint::Journal::data(record), bytes_at(source), bytes);
    record->filled.store(1, std::memory_order_release);
  });
  return reinterpret_cast<uint64_t>(checkpoint::Journal::data(record));
}

JournaledResult::JournaledResult(Session& session, const EntryHeader& header, uint64_t index,
                                 uint64_t target, uint64_t bytes)
    : session_(session), seq_(header.seq), address_(target), bytes_(bytes), call_(header.call) {
  checkpoint::Journal& journal = session.recovery().journal();
  if (!journal.exists()) return;
  record_ = journal.find(seq_, index, JournalKind::kResult);
  if (record_ && record_->bytes == bytes && record_->filled.load()) {
    scratch_ = session.state<ScratchMemory>().take(session.backend(), bytes);
    if (!scratch_)
      session.recovery().fail(ring::FaultKind::kUnrecoverable, CUDA_ERROR_OUT_OF_MEMORY,
                              "there is no memory to compare [" + std::to_string(bytes) +
                                  "] bytes with what the program was given");
    address_ = reinterpret_cast<uint64_t>(scratch_);
  } else if (!record_) {
    require_kept(session, seq_, "gave to the program");
    record_ = journal.add_result(seq_, index, bytes);
  }
}

int JournaledResult::finish(CUstream stream) {
  if (!record_ || (!scratch_ && captures(session_, stream))) return 0;
  if (!scratch_)
    return session_.on_stream(stream, [record = record_, address = address_, bytes = bytes_] {
      record->digest = checkpoint::digest(bytes_at(address), bytes, 0);
      record->word = checkpoint::word_of(bytes_at(address), bytes);
      if (checkpoint::Journal::result(record))
        checkpoint::take_sample({bytes_at(address), bytes}, checkpoint::Journal::told(record));
      record->filled.store(1, std::memory_order_release);
    });
  checkpoint::Recovery* const recovery = &session_.recovery();
  recovery->comparison_begins();
  ScratchMemory* const pool = &session_.state<ScratchMemory>();
  const auto compare = [recovery, pool, seq = seq_, call = call_, record = record_,
                        scratch = scratch_] {
    compare_told(*recovery, seq, call, *record, scratch);
    pool->give(scratch);
    recovery->comparison_ends();
  };
  if (const int code = session_.on_stream(stream, compare)) {
    recovery->comparison_ends();
    return code;
  }
  // While a fence is open the device is asked whether it has failed: then nothing waits for this.
  static_cast<void>(session_.publish_on_stream(stream, ring::kDeviceWord, 0));
  return 0;
}

int copy_journaled(Session& session, const EntryHeader& header, uint64_t target, uint64_t source,
                   uint64_t bytes, CUstream stream) {
  const auto copy = session.backend().cuMemcpyAsync;
  if (!session.recovery().journal().exists() || !bytes) return copy(target, source, bytes, stream);
  if (in_client_memory(session, source, bytes))
    source = journaled_source(session, header, 0, source, bytes, stream);
  if (!in_client_memory(session, target, bytes)) return copy(target, source, bytes, stream);
  JournaledResult result(session, header, 0, target, bytes);
  const int code = copy(result.address(), source, bytes, stream);
  if (code) return code;
  return result.finish(stream);
}

// Rows with gaps in client memory, one copy each.
static int copy_rows_journaled(Session& session, const EntryHeader& header,
                               const CUDA_MEMCPY2D& job, CUstream stream) {
  for (uint64_t row = 0; row < job.Height; ++row) {
    const uint64_t target = job.dstDevice + row * job.dstPitch;
    JournaledResult result(session, header, 1 + row, target, job.WidthInBytes);
    int code = session.backend().cuMemcpyAsync(result.address(), job.srcDevice + row * job.srcPitch,
                                               job.WidthInBytes, stream);
    if (code == 0) code = result.finish(stream);
    if (code) return code;
  }
  return 0;
}

int copy_2d_journaled(Session& session, const EntryHeader& header, const cmd::cudaMemcpy2DAsync& c,
                      CUstream stream) {
  CUDA_MEMCPY2D job{};
  job.srcMemoryType = job.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  job.srcDevice = c.src;
  job.srcPitch = c.src_pitch;
  job.dstDevice = c.dst;
  job.dstPitch = c.dst_pitch;
  job.WidthInBytes = c.width;
  job.Height = c.height;
  const auto copy = session.backend().cuMemcpy2DAsync_v2;
  // Sizes are the client's: a span that does not fit 64 bits is left for the backend to refuse.
  uint64_t span = 0, to_span = 0;
  if (!session.recovery().journal().exists() || !c.height || !c.width ||
      __builtin_mul_overflow(c.height - 1, c.src_pitch, &span) ||
      __builtin_add_overflow(span, c.width, &span) ||
      __builtin_mul_overflow(c.height - 1, c.dst_pitch, &to_span) ||
      __builtin_add_overflow(to_span, c.width, &to_span))
    return copy(&job, stream);
  if (in_client_memory(session, c.src, span))
    job.srcDevice = journaled_source(session, header, 0, c.src, span, stream);
  if (!in_client_memory(session, c.dst, to_span)) return copy(&job, stream);
  // The digest is of the rows without what lies between them.
  if (c.dst_pitch != c.width) return copy_rows_journaled(session, header, job, stream);
  JournaledResult result(session, header, 0, c.dst, to_span);
  job.dstDevice = result.address();
  const int code = copy(&job, stream);
  return code ? code : result.finish(stream);
}

// There is nothing to compare: what an earlier server has filled is left as it is.
int fill_journaled(Session& session, const EntryHeader& header, uint64_t target, uint64_t bytes,
                   CUstream stream, FunctionRef<int()> fill) {
  checkpoint::Journal& journal = session.recovery().journal();
  if (!journal.exists() || !bytes || !in_client_memory(session, target, bytes) ||
      captures(session, stream))
    return fill();
  JournalRecord* record = journal.find(header.seq, 0, JournalKind::kResult);
  if (record && record->filled.load()) return 0;
  if (!record) {
    require_kept(session, header.seq, "gave to the program");
    record = journal.add(header.seq, 0, JournalKind::kResult, bytes, 0);
  }
  const int code = fill();
  if (code || !record) return code;
  return session.on_stream(stream,
                           [record] { record->filled.store(1, std::memory_order_release); });
}

}  // namespace pyft::server
