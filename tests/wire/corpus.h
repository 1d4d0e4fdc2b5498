// The seeds of the fuzzers: entries of real jobs, from the file that make_corpus.py writes.
#ifndef PYFT_TESTS_WIRE_CORPUS_H_
#define PYFT_TESTS_WIRE_CORPUS_H_

#include <fstream>
#include <iterator>
#include <span>
#include <vector>

#include "fuzz.h"
#include "ring/layout.h"

struct Seed {
  pyft::ring::EntryHeader header;
  Message body, payload;
};

inline std::vector<Seed> read_corpus(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const Message bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<Seed> seeds;
  for (std::size_t at = 0; at + sizeof(Seed::header) <= bytes.size();) {
    Seed seed{};
    std::memcpy(&seed.header, bytes.data() + at, sizeof seed.header);
    const auto body = bytes.begin() + static_cast<std::ptrdiff_t>(at + sizeof seed.header);
    const auto payload = bytes.begin() + static_cast<std::ptrdiff_t>(at + seed.header.size);
    const auto payload_bytes = static_cast<std::ptrdiff_t>(seed.header.payload_bytes);
    seed.body.assign(body, payload);
    seed.payload.assign(payload, payload + payload_bytes);
    at += seed.header.size + (seed.header.payload_bytes + 15) / 16 * 16;
    seeds.push_back(std::move(seed));
  }
  FUZZ_CHECK(seeds.size() > 20);
  return seeds;
}

inline std::span<const std::byte> bytes_of(const Message& message) {
  return std::as_bytes(std::span(message));
}

#endif  // PYFT_TESTS_WIRE_CORPUS_H_
