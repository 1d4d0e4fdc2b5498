#include <cstring>

#include "server/handlers/handlers.h"

namespace pyft::server {

namespace {

// What both ways to encode have in common; `encode` calls the function and returns its code.
template <class Function, class Encode>
Status encode_map(Session& session, const EntryHeader& header, const char* name, Body tail,
                  Function function, const Encode& encode) {
  TensorMapArguments a;
  if (!read_body(tail, &a)) return short_body(name);
  if (a.rank < 1 || a.rank > TensorMapArguments::kMaxRank)
    return Status::broken("a tensor map of rank [" + std::to_string(a.rank) + "]");
  if (!function) return missing(session, header, name, CUDA_ERROR_NOT_SUPPORTED);
  CUtensorMap map{};
  const int code = encode(&map, a);
  const Body bytes = std::as_bytes(std::span(&map, code == 0 ? 1 : 0));
  return finish(session, header, name, Domain::kCuda, code, nullptr, 0, bytes);
}

}  // namespace

Status do_cuTensorMapEncodeTiled(Session& session, const EntryHeader& header,
                                 const cmd::cuTensorMapEncodeTiled&, Body tail, Body) {
  const auto function = session.backend().cuTensorMapEncodeTiled;
  const auto encode = [&](CUtensorMap* map, const TensorMapArguments& a) {
    return function(map, static_cast<CUtensorMapDataType>(a.type), a.rank,
                    reinterpret_cast<void*>(a.address), a.sizes, a.strides, a.box,
                    a.element_strides, static_cast<CUtensorMapInterleave>(a.modes[0]),
                    static_cast<CUtensorMapSwizzle>(a.modes[1]),
                    static_cast<CUtensorMapL2promotion>(a.modes[2]),
                    static_cast<CUtensorMapFloatOOBfill>(a.modes[3]));
  };
  return encode_map(session, header, "cuTensorMapEncodeTiled", tail, function, encode);
}

Status do_cuTensorMapEncodeIm2col(Session& session, const EntryHeader& header,
                                  const cmd::cuTensorMapEncodeIm2col&, Body tail, Body) {
  const auto function = session.backend().cuTensorMapEncodeIm2col;
  const auto encode = [&](CUtensorMap* map, const TensorMapArguments& a) {
    int lower[TensorMapArguments::kMaxRank], upper[TensorMapArguments::kMaxRank];
    std::memcpy(lower, a.box, sizeof lower);
    std::memcpy(upper, a.upper, sizeof upper);
    return function(
        map, static_cast<CUtensorMapDataType>(a.type), a.rank, reinterpret_cast<void*>(a.address),
        a.sizes, a.strides, lower, upper, a.channels, a.pixels, a.element_strides,
        static_cast<CUtensorMapInterleave>(a.modes[0]), static_cast<CUtensorMapSwizzle>(a.modes[1]),
        static_cast<CUtensorMapL2promotion>(a.modes[2]),
        static_cast<CUtensorMapFloatOOBfill>(a.modes[3]));
  };
  return encode_map(session, header, "cuTensorMapEncodeIm2col", tail, function, encode);
}

}  // namespace pyft::server
