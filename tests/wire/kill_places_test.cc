// PYFT_KILL_AT: what it says, and what it is refused for.
#include "server/kill_places.h"

#include "check.h"

namespace {

using namespace pyft::server;  // NOLINT: a test

std::string problem_of(std::string_view text) {
  std::vector<KillPlace> places;
  return read_kill_places(text, &places);
}

std::vector<KillPlace> places_of(std::string_view text) {
  std::vector<KillPlace> places;
  CHECK_EQ(read_kill_places(text, &places), "");
  return places;
}

TEST(a_place_says_what_it_needs_in_any_order) {
  CHECK(places_of("").empty());
  for (const char* const text : {"kill:3,cut=2,rank=0,note=1", "kill:3,note=1,rank=0,cut=2"}) {
    const std::vector<KillPlace> places = places_of(text);
    CHECK_EQ(places.size(), size_t{1});
    CHECK_EQ(places[0].entry, uint64_t{3});
    CHECK_EQ(places[0].cut, uint64_t{2});
    CHECK(places[0].rank == uint64_t{0});
    CHECK(places[0].note == uint64_t{1});
  }
}

TEST(several_places_stand_behind_one_another) {
  const std::vector<KillPlace> places = places_of("kill:1,cut=0;kill:2,cut=5,note=255");
  CHECK_EQ(places.size(), size_t{2});
  CHECK(!places[0].rank && !places[0].note && !places[1].rank);
  CHECK_EQ(places[1].cut, uint64_t{5});
  CHECK(places[1].note == uint64_t{255});
}

TEST(what_cannot_be_read_is_named) {
  const std::string no_key = "is not kill:C, cut=S, rank=R or note=N";
  const std::string no_number = "has no number that can be used";
  const std::pair<const char*, std::string> refused[] = {
      {"kill:3,cut=2,when=1", "[when=1] " + no_key},
      {"kill:3,cut:2", "[cut:2] " + no_key},
      {"kill=3,cut=2", "[kill=3] " + no_key},
      {"cut:2,kill=3", "[cut:2] " + no_key},
      {"kill:3,cut=2,", "[] " + no_key},
      {"kill:3,cut=2;", "[] " + no_key},
      {"kill,cut=2", "[kill] " + no_number},
      {"kill:3,cut", "[cut] " + no_number},
      {"kill:3,cut=x", "[cut=x] " + no_number},
      {"kill:3,cut=2x", "[cut=2x] " + no_number},
      {"kill:3,cut=-2", "[cut=-2] " + no_number},
      {"kill:3,cut=99999999999999999999", "[cut=99999999999999999999] " + no_number},
      {"kill:3,cut=2,cut=2", "[cut=2] is there twice"},
      {"kill:3,rank=1", "[kill:3,rank=1] does not say after which cut: add cut=S"},
      {"kill:0,cut=2", "[kill:0,cut=2] counts entries from 1"},
      {"kill:3,cut=2,note=256", "[kill:3,cut=2,note=256] has a note of [256] or more"},
      {"kill:3,cut=2;lost", "[lost] " + no_key},
  };
  for (const auto& [text, why] : refused)
    CHECK_EQ(problem_of(text), "PYFT_KILL_AT is [" + std::string(text) + "]: " + why);
}

}  // namespace

CHECK_MAIN
