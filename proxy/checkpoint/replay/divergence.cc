#include "checkpoint/replay/divergence.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "checkpoint/replay/journal.h"
#include "pyft/settings.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kPiece = 64;  // of a sample

// Where the piece of a sample at `at` lies in a result.
uint64_t place_of(uint64_t at, uint64_t bytes) {
  if (bytes <= kSampleBytes) return at;
  constexpr uint64_t kLast = kSampleBytes / kPiece - 1;
  const uint64_t begin = (bytes - kPiece) / kLast * (at / kPiece);
  return begin / kPiece * kPiece + at % kPiece;
}

uint64_t word_at(Bytes bytes, uint64_t at) {
  return word_of(bytes.data() + at, std::min(kWordBytes, bytes.size() - at));
}

// The first word that differs, or the digests where no sample does.
std::string difference_text(const ring::JournalRecord& record, Bytes before, Bytes now,
                            const ring::Digest& digest) {
  const auto differs = std::ranges::mismatch(before, now);
  const bool seen = differs.in1 != before.end();
  uint64_t at = static_cast<uint64_t>(differs.in1 - before.begin()) / kWordBytes * kWordBytes;
  if (!seen) at = 0;
  const auto digits =
      static_cast<int>(2 * (seen ? std::min(kWordBytes, before.size() - at) : kWordBytes));
  char place[64] = "";
  if (!seen)
    std::snprintf(place, sizeof place, " with digest");
  else if (record.bytes > kWordBytes)
    std::snprintf(place, sizeof place, " with, at [%llu],",
                  static_cast<unsigned long long>(place_of(at, record.bytes)));
  char text[208];
  std::snprintf(text, sizeof text, "[%llu] bytes%s [0x%0*llx], the program was given [0x%0*llx]",
                static_cast<unsigned long long>(record.bytes), place, digits,
                static_cast<unsigned long long>(seen ? word_at(now, at) : digest.low), digits,
                static_cast<unsigned long long>(seen ? word_at(before, at) : record.digest.low));
  return text;
}

// Of what no sample says anything is not known whether the program has decided by it.
Weight weight_of(Bytes before, Bytes now) {
  if (before.empty()) return Weight::kDecides;
  if (!std::ranges::equal(before, now)) return account(before, now);
  return look_like_counts(now) ? Weight::kDecides : Weight::kUnseen;
}

// The replay before this one, against this one: last digits may differ.
Repeated repeated(const ring::JournalResult& result, const ring::JournalRecord& record, Bytes again,
                  Bytes now, const ring::Digest& digest) {
  if (!result.repeated.load(std::memory_order_acquire)) return Repeated::kNot;
  if (result.again == digest) return Repeated::kSame;
  const bool all = record.bytes <= kSampleBytes;
  return all && account(again, now) == Weight::kLastDigits ? Repeated::kSame : Repeated::kAnother;
}

}  // namespace

DivergencePolicy divergence_policy() {
  const bool report = settings::divergence() == settings::Divergence::kReport;
  return report ? DivergencePolicy::kReport : DivergencePolicy::kStrict;
}

uint64_t sample_bytes(uint64_t bytes) {
  return std::min(bytes, kSampleBytes);
}

void take_sample(Bytes result, std::byte* sample) {
  const uint64_t kept = sample_bytes(result.size());
  for (uint64_t at = 0; at < kept; at += kPiece)
    std::memcpy(sample + at, result.data() + place_of(at, result.size()),
                std::min(kPiece, kept - at));
}

uint64_t word_of(const void* bytes, uint64_t count) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, std::min(count, kWordBytes));
  return word;
}

std::optional<Difference> compare_result(ring::JournalRecord& record, Bytes now,
                                         const ring::Digest& digest) {
  ring::JournalResult* const result = Journal::result(&record);
  Difference difference;
  if (result) {
    const uint64_t kept = sample_bytes(record.bytes);
    std::byte* const told = Journal::told(&record);
    std::byte sample[kSampleBytes];
    take_sample(now, sample);
    const Bytes before(told, kept), again(told + kept, kept), here(sample, kept);
    difference.repeated = repeated(*result, record, again, here, digest);
    difference.weight = weight_of(before, here);
    difference.what = difference_text(record, before, here, digest);
    result->repeated.store(0, std::memory_order_release);  // this process may end in between
    result->again = digest;
    std::memcpy(told + kept, sample, kept);
    result->repeated.store(1, std::memory_order_release);
  } else {
    const uint64_t kept = record.bytes <= kWordBytes ? record.bytes : 0;
    const Bytes before(reinterpret_cast<const std::byte*>(&record.word), kept);
    difference.weight = weight_of(before, now.first(kept));
    difference.what = difference_text(record, before, now.first(kept), digest);
  }
  if (record.digest == digest) return std::nullopt;
  return difference;
}

}  // namespace pyft::checkpoint
