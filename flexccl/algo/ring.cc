#include <algorithm>

#include "algo/schedule.h"

namespace flexccl {
namespace {

// Slices of a chunk that are under way at once: one is reduced while the next one travels.
constexpr int kSlicesPerRound = 2;
// A slot is used again at the earliest three steps later. With fewer than two steps' worth, the
// ranks of a ring would wait for each other in a circle.
constexpr int kSlots = 4 * kSlicesPerRound;

struct Chunk {
  std::size_t offset, bytes;
};

struct Slice {
  std::size_t offset, bytes;
};

// Slices [first, first + limit) of a chunk. An empty chunk has one empty slice, so that each pair
// of neighbours exchanges at least one frame and compares what they are doing.
std::vector<Slice> slices(const Chunk& chunk, std::size_t first = 0, std::size_t limit = SIZE_MAX) {
  const std::size_t all = std::max<std::size_t>(1, (chunk.bytes + kSliceBytes - 1) / kSliceBytes);
  std::vector<Slice> found;
  for (std::size_t i = first; i < all && i - first < limit; ++i)
    found.push_back({chunk.offset + i * kSliceBytes,
                     std::min(kSliceBytes, chunk.bytes - std::min(chunk.bytes, i * kSliceBytes))});
  return found;
}

std::size_t bytes_of_count(const OpDescriptor& op) {
  return op.count * element_size(static_cast<ncclDataType_t>(op.dtype));
}

std::vector<Chunk> equal_chunks(std::size_t bytes, int nranks) {
  std::vector<Chunk> chunks;
  for (int i = 0; i < nranks; ++i) chunks.push_back({static_cast<std::size_t>(i) * bytes, bytes});
  return chunks;
}

std::vector<Chunk> all_reduce_chunks(const OpDescriptor& op, int nranks) {
  const std::size_t element = element_size(static_cast<ncclDataType_t>(op.dtype));
  const std::size_t each = chunk_elements(op.count, element, nranks) * element;
  const std::size_t all = op.count * element;
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < static_cast<std::size_t>(nranks); ++i) {
    const std::size_t begin = std::min(all, i * each);
    chunks.push_back({begin, std::min(each, all - begin)});
  }
  return chunks;
}

// Scratch slots, handed out in turn; each remembers the send that reads it last.
class Slots {
 public:
  explicit Slots(Schedule* schedule) {
    schedule->scratch = std::make_unique_for_overwrite<std::byte[]>(kSlots * kSliceBytes);
    base_ = schedule->scratch.get();
    std::fill(std::begin(read_by_), std::end(read_by_), -1);
  }
  int take() { return static_cast<int>(next_++ % kSlots); }
  std::byte* at(int slot) const { return base_ + static_cast<std::size_t>(slot) * kSliceBytes; }
  int& read_by(int slot) { return read_by_[slot]; }

 private:
  std::byte* base_;
  unsigned next_ = 0;
  int read_by_[kSlots];
};

// Builds schedules around one ring. All chunks are walked through in rounds of a few slices: what a
// rank receives it passes on in the next step, and what it has reduced it spreads in the next
// round, out of its cache, however long the chunks are.
class RingBuilder {
 public:
  RingBuilder(Schedule* schedule, Ring ring, std::vector<Chunk> chunks)
      : schedule_(*schedule), ring_(ring), chunks_(std::move(chunks)) {
    for (const Chunk& chunk : chunks_)
      rounds_ = std::max(rounds_, (slices(chunk).size() + kSlicesPerRound - 1) / kSlicesPerRound);
  }

  void reduce_to_owner(const std::byte* in, std::byte* own_chunk) {
    Slots slots(&schedule_);
    for (std::size_t round = 0; round < rounds_; ++round)
      for (int step = 0; step < ring_.size - 1; ++step)
        reduce_step(&slots, in, own_chunk, step, round);
  }

  void spread(const std::byte* own_chunk, std::byte* out) {
    for (std::size_t round = 0; round < rounds_; ++round)
      for (int step = 0; step < ring_.size - 1; ++step) spread_step(own_chunk, out, step, round);
  }

  // Each round is spread while the next one is reduced: twice as much is under way in each step.
  void reduce_and_spread(const std::byte* in, std::byte* own_chunk, std::byte* out) {
    Slots slots(&schedule_);
    for (std::size_t round = 0; round <= rounds_; ++round)
      for (int step = 0; step < ring_.size - 1; ++step) {
        if (round) spread_step(own_chunk, out, step, round - 1);
        if (round < rounds_) reduce_step(&slots, in, own_chunk, step, round);
      }
  }

  const Chunk& chunk(int slot) const { return chunks_[static_cast<std::size_t>(ring_.wrap(slot))]; }

 private:
  std::vector<Slice> slices_of(int slot, std::size_t round) const {
    return slices(chunk(slot), round * kSlicesPerRound, kSlicesPerRound);
  }

  // Slot r sends chunk r-1-s and receives r-2-s, so that chunk c starts at slot c+1.
  void reduce_step(Slots* slots, const std::byte* in, std::byte* own_chunk, int step,
                   std::size_t round) {
    send_partials(slots, in, step, round);
    receive_partials(slots, in, own_chunk, step, round);
  }

  // Slot r sends chunk r-s and receives r-1-s.
  void spread_step(const std::byte* own_chunk, std::byte* out, int step, std::size_t round) {
    if (step == 0) ready_ = std::move(completed_);
    const Chunk& sent = chunk(ring_.rank - step);
    std::size_t i = 0;
    for (const Slice& slice : slices_of(ring_.rank - step, round)) {
      const std::byte* from = step ? out + slice.offset : own_chunk + (slice.offset - sent.offset);
      const int after = i < ready_.size() ? ready_[i] : -1;
      schedule_.sends.push_back({ring_.next(), from, slice.bytes, after, nullptr, schedule_.op});
      ++i;
    }
    ready_.clear();
    for (const Slice& slice : slices_of(ring_.rank - 1 - step, round)) {
      ready_.push_back(static_cast<int>(schedule_.receives.size()));
      schedule_.receives.push_back(
          {ring_.previous(), out + slice.offset, slice.bytes, -1, nullptr, false, schedule_.op});
    }
  }

  void send_partials(Slots* slots, const std::byte* in, int step, std::size_t round) {
    std::size_t i = 0;
    for (const Slice& slice : slices_of(ring_.rank - 1 - step, round)) {
      Send send{.peer = ring_.next(),
                .from = in + slice.offset,
                .bytes = slice.bytes,
                .op = schedule_.op};
      int slot = -1;
      if (step) {
        slot = held_[i].first;
        send.from = slots->at(slot);
        send.after = held_[i].second;
      } else if (schedule_.reduction.premultiplies) {
        slot = slots->take();
        send.staging = slots->at(slot);
      }
      if (slot >= 0) slots->read_by(slot) = static_cast<int>(schedule_.sends.size());
      schedule_.sends.push_back(send);
      ++i;
    }
  }

  void receive_partials(Slots* slots, const std::byte* in, std::byte* own_chunk, int step,
                        std::size_t round) {
    held_.clear();
    const bool last = step == ring_.size - 2;
    const Chunk& target = chunk(ring_.rank - 2 - step);
    for (const Slice& slice : slices_of(ring_.rank - 2 - step, round)) {
      Receive receive{.peer = ring_.previous(),
                      .bytes = slice.bytes,
                      .own = in + slice.offset,
                      .completes = last,
                      .op = schedule_.op};
      const int index = static_cast<int>(schedule_.receives.size());
      if (last) {
        receive.to = own_chunk + (slice.offset - target.offset);
        completed_.push_back(index);
      } else {
        const int slot = slots->take();
        receive.to = slots->at(slot);
        receive.after = slots->read_by(slot);
        held_.emplace_back(slot, index);
      }
      schedule_.receives.push_back(receive);
    }
  }

  Schedule& schedule_;
  Ring ring_;
  std::vector<Chunk> chunks_;
  std::size_t rounds_ = 1;
  std::vector<std::pair<int, int>> held_;  // (slot, receive) of the reducing step before
  std::vector<int> completed_;             // receives that complete the own chunk in this round
  std::vector<int> ready_;                 // what the next spreading step sends, as receives
};

Schedule alone(Schedule schedule, const std::byte* in, std::byte* out, std::size_t bytes) {
  schedule.copies.push_back({in, out, bytes, true});
  return schedule;
}

}  // namespace

std::size_t chunk_elements(std::size_t count, std::size_t element_bytes, int nranks) {
  const std::size_t unit = 64 / element_bytes;  // chunks start on cache lines of an aligned buffer
  const std::size_t even =
      (count + static_cast<std::size_t>(nranks) - 1) / static_cast<std::size_t>(nranks);
  return (even + unit - 1) / unit * unit;
}

Schedule all_reduce(const OpDescriptor& op, const Reduction& reduction, Ring ring,
                    Buffers buffers) {
  Schedule schedule{.op = op, .reduction = reduction};
  if (ring.size == 1)
    return alone(std::move(schedule), buffers.in, buffers.out, bytes_of_count(op));
  RingBuilder builder(&schedule, ring, all_reduce_chunks(op, ring.size));
  std::byte* own = buffers.out + builder.chunk(ring.rank).offset;
  builder.reduce_and_spread(buffers.in, own, buffers.out);
  return schedule;
}

Schedule reduce_scatter(const OpDescriptor& op, const Reduction& reduction, Ring ring,
                        Buffers buffers) {
  Schedule schedule{.op = op, .reduction = reduction};
  const std::size_t bytes = bytes_of_count(op);
  if (ring.size == 1) return alone(std::move(schedule), buffers.in, buffers.out, bytes);
  RingBuilder(&schedule, ring, equal_chunks(bytes, ring.size))
      .reduce_to_owner(buffers.in, buffers.out);
  return schedule;
}

Schedule all_gather(const OpDescriptor& op, Ring ring, Buffers buffers) {
  Schedule schedule{.op = op};
  const std::size_t bytes = bytes_of_count(op);
  schedule.copies.push_back(
      {buffers.in, buffers.out + static_cast<std::size_t>(ring.rank) * bytes, bytes, false});
  RingBuilder(&schedule, ring, equal_chunks(bytes, ring.size)).spread(buffers.in, buffers.out);
  return schedule;
}

Schedule reduce(const OpDescriptor& op, const Reduction& reduction, Ring ring, Buffers buffers) {
  Schedule schedule{.op = op, .reduction = reduction};
  const std::size_t bytes = bytes_of_count(op);
  if (ring.size == 1) return alone(std::move(schedule), buffers.in, buffers.out, bytes);
  Slots slots(&schedule);
  const int position = ring.wrap(ring.rank - op.root - 1);
  const bool first = position == 0, last = position == ring.size - 1;
  for (const Slice& slice : slices({0, bytes})) {
    const int slot = last ? 0 : slots.take();
    Send send{
        .peer = ring.next(), .from = buffers.in + slice.offset, .bytes = slice.bytes, .op = op};
    if (first && reduction.premultiplies) send.staging = slots.at(slot);
    if (!first) {
      send.from = slots.at(slot);
      send.after = static_cast<int>(schedule.receives.size());
      schedule.receives.push_back(
          {ring.previous(), last ? buffers.out + slice.offset : slots.at(slot), slice.bytes,
           last ? -1 : slots.read_by(slot), buffers.in + slice.offset, last, op});
    }
    if (last) continue;
    slots.read_by(slot) = static_cast<int>(schedule.sends.size());
    schedule.sends.push_back(send);
  }
  return schedule;
}

Schedule broadcast(const OpDescriptor& op, Ring ring, Buffers buffers) {
  Schedule schedule{.op = op};
  const std::size_t bytes = bytes_of_count(op);
  const int position = ring.wrap(ring.rank - op.root);
  if (position == 0) schedule.copies.push_back({buffers.in, buffers.out, bytes, false});
  for (const Slice& slice : slices({0, bytes})) {
    Send send{
        .peer = ring.next(), .from = buffers.in + slice.offset, .bytes = slice.bytes, .op = op};
    if (position) {
      send.from = buffers.out + slice.offset;
      send.after = static_cast<int>(schedule.receives.size());
      schedule.receives.push_back(
          {ring.previous(), buffers.out + slice.offset, slice.bytes, -1, nullptr, false, op});
    }
    if (position < ring.size - 1) schedule.sends.push_back(send);
  }
  return schedule;
}

}  // namespace flexccl
