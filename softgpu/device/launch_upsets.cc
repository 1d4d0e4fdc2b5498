#include "device/launch_upsets.h"

#include <cinttypes>
#include <cstdio>

#include "memory/pointers.h"

namespace softgpu {

void LaunchUpsets::add(const Armed& armed, const Sms& sms) {
  Upset& upset = upsets_.emplace_back();
  upset.aim = armed.request.upset;
  upset.times = armed.times;
  upset.sms = sms;
  upset.sentence = "the launch computes nothing that can be hit";
  numbers_.push_back(armed.number);
}

Fault LaunchUpsets::run(const std::function<Fault()>& launch) {
  if (upsets_.empty()) return launch();
  const UpsetsHere here(&upsets_);
  return launch();
}

bool copies_for(const FaultRequest& request, uint64_t to, uint64_t from) {
  if (!request.device) return true;
  for (const uint64_t address : {to, from}) {
    const auto info = pointers().find(address);
    if (info && !info->is_host() && info->device == *request.device) return true;
  }
  return false;
}

std::string copied_in_words(const CopiedRows& copied, uint64_t from, uint64_t number) {
  char text[128];
  std::snprintf(text, sizeof text,
                " by copy [%" PRIu64 "], of [%" PRIu64 "] bytes from [0x%" PRIx64 "] to [0x%" PRIx64
                "]",
                number, copied.size(), from, copied.address);
  return text;
}

}  // namespace softgpu
