#include "server/profile/profile.h"

#include <algorithm>

#include "server/handlers/handlers.h"

namespace pyft::server {

// The bytes from `offset` on, as many as an answer holds; those of offset 0 are what is known then.
Status do_pyftReadProfile(Session& session, const EntryHeader& header,
                          const cmd::pyftReadProfile& c, Body, Body) {
  Profile& profile = session.state<Profile>();
  uint64_t dropped = 0;
  if (!c.offset && !session.recovery().replaying()) {
    profile.collect();
    dropped = profile.take_dropped();
    if (c.ends) profile.end();
  }
  const std::span<const std::byte> all = profile.collected();
  const std::span<const std::byte> rest = all.subspan(std::min<uint64_t>(c.offset, all.size()));
  const uint64_t values[] = {all.size(), session.channel().control().epoch, dropped};
  return session.reply(header, 0, values,
                       rest.first(std::min<size_t>(rest.size(), ring::kReplyInlineBytes)));
}

}  // namespace pyft::server
