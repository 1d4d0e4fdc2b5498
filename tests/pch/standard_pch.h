// Headers of the standard library that most sources include. For libraries under sanitizers they
// are parsed once, not for each source: a third of the time. What is installed is compiled without,
// so a source still has to include what it uses. Warnings come from there too: GCC 12 warns of its
// own headers where they are precompiled.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>
