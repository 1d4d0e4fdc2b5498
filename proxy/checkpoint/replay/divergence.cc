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

// What a result is compared with, all of it or a sample, and how sentences call it.
struct Before {
  const char* words;
  ring::Digest digest;
  Bytes sample;
};

constexpr const char* kGiven = "the program was given";

// The first word that differs, or the digests where no sample does.
std::string difference_text(uint64_t bytes, const Before& before, Bytes now,
                            const ring::Digest& digest) {
  const auto differs = std::ranges::mismatch(before.sample, now);
  const bool seen = differs.in1 != before.sample.end();
  uint64_t at = static_cast<uint64_t>(differs.in1 - before.sample.begin());
  at = at / kWordBytes * kWordBytes;
  if (!seen) at = 0;
  const auto digits =
      static_cast<int>(2 * (seen ? std::min(kWordBytes, before.sample.size() - at) : kWordBytes));
  char place[64] = "";
  if (!seen)
    std::snprintf(place, sizeof place, " with digest");
  else if (bytes > kWordBytes)
    std::snprintf(place, sizeof place, " with, at [%llu],",
                  static_cast<unsigned long long>(place_of(at, bytes)));
  char text[208];
  const uint64_t then = seen ? word_at(before.sample, at) : before.digest.low;
  std::snprintf(text, sizeof text, "[%llu] bytes%s [0x%0*llx], %s [0x%0*llx]",
                static_cast<unsigned long long>(bytes), place, digits,
                static_cast<unsigned long long>(seen ? word_at(now, at) : digest.low), before.words,
                digits, static_cast<unsigned long long>(then));
  return text;
}

// Of what no sample says anything is not known whether the program has decided by it.
Weight weight_of(Bytes before, Bytes now) {
  if (before.empty()) return Weight::kDecides;
  if (!std::ranges::equal(before, now)) return account(before, now);
  return look_like_counts(now) ? Weight::kDecides : Weight::kUnseen;
}

// All that a record without room for samples has of a result, if that is short.
Bytes word_in(const ring::JournalRecord& record) {
  const uint64_t kept = record.bytes <= kWordBytes ? record.bytes : 0;
  return {reinterpret_cast<const std::byte*>(&record.word), kept};
}

Before last_of(ring::JournalRecord& record) {
  const ring::JournalResult* const result = Journal::result(&record);
  if (!result) return {kGiven, record.digest, word_in(record)};
  const uint64_t kept = sample_bytes(record.bytes);
  const std::byte* const told = Journal::told(&record);
  if (!result->repeated.load(std::memory_order_acquire))
    return {kGiven, record.digest, {told, kept}};
  return {"the rank's replay gave", result->again, {told + kept, kept}};
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
    difference.what = difference_text(record.bytes, {kGiven, record.digest, before}, here, digest);
    result->repeated.store(0, std::memory_order_release);  // this process may end in between
    result->again = digest;
    std::memcpy(told + kept, sample, kept);
    result->repeated.store(1, std::memory_order_release);
  } else {
    const Before before{kGiven, record.digest, word_in(record)};
    const Bytes here = now.first(before.sample.size());
    difference.weight = weight_of(before.sample, here);
    difference.what = difference_text(record.bytes, before, here, digest);
  }
  if (record.digest == digest) return std::nullopt;
  return difference;
}

std::optional<Difference> compare_last(ring::JournalRecord& record, Bytes now,
                                       const ring::Digest& digest) {
  const Before before = last_of(record);
  if (before.digest == digest) return std::nullopt;
  std::byte sample[kSampleBytes];
  take_sample(now, sample);
  const Bytes here(sample, before.sample.size());
  Difference difference;
  difference.what = difference_text(record.bytes, before, here, digest);
  difference.told_only = !Journal::result(&record);
  return difference;
}

}  // namespace pyft::checkpoint
