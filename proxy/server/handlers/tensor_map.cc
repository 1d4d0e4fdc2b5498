#include "server/handlers/handlers.h"

namespace pyft::server {

namespace {

CUtensorMapDataType type_of(const TensorMapArguments& a) {
  return static_cast<CUtensorMapDataType>(a.type);
}

bool read_arguments(Body tail, TensorMapArguments* out, Status* bad) {
  if (!read_body(tail, out)) *bad = short_body("cuTensorMapEncode");
  const bool ranked = out->rank >= 1 && out->rank <= TensorMapArguments::kMaxRank;
  if (bad->ok() && !ranked)
    *bad = Status::broken("a tensor map of rank [" + std::to_string(out->rank) + "]");
  return bad->ok();
}

Status answer(Session& session, const EntryHeader& header, const char* name, int code,
              const CUtensorMap& map) {
  const Body bytes = std::as_bytes(std::span(&map, code == 0 ? 1 : 0));
  return finish(session, header, name, Domain::kCuda, code, nullptr, 0, bytes);
}

}  // namespace

Status do_cuTensorMapEncodeTiled(Session& session, const EntryHeader& header,
                                 const cmd::cuTensorMapEncodeTiled&, Body tail, Body) {
  TensorMapArguments a;
  Status bad = Status::good();
  if (!read_arguments(tail, &a, &bad)) return bad;
  const auto encode = session.backend().cuTensorMapEncodeTiled;
  if (!encode) return missing(session, header, "cuTensorMapEncodeTiled", CUDA_ERROR_NOT_SUPPORTED);
  CUtensorMap map{};
  const int code = encode(
      &map, type_of(a), a.rank, reinterpret_cast<void*>(a.address), a.sizes, a.strides, a.box,
      a.element_strides, static_cast<CUtensorMapInterleave>(a.modes[0]),
      static_cast<CUtensorMapSwizzle>(a.modes[1]), static_cast<CUtensorMapL2promotion>(a.modes[2]),
      static_cast<CUtensorMapFloatOOBfill>(a.modes[3]));
  return answer(session, header, "cuTensorMapEncodeTiled", code, map);
}

Status do_cuTensorMapEncodeIm2col(Session& session, const EntryHeader& header,
                                  const cmd::cuTensorMapEncodeIm2col&, Body tail, Body) {
  TensorMapArguments a;
  Status bad = Status::good();
  if (!read_arguments(tail, &a, &bad)) return bad;
  const auto encode = session.backend().cuTensorMapEncodeIm2col;
  if (!encode) return missing(session, header, "cuTensorMapEncodeIm2col", CUDA_ERROR_NOT_SUPPORTED);
  int lower[TensorMapArguments::kMaxRank], upper[TensorMapArguments::kMaxRank];
  std::memcpy(lower, a.box, sizeof lower);
  std::memcpy(upper, a.upper, sizeof upper);
  CUtensorMap map{};
  const int code = encode(&map, type_of(a), a.rank, reinterpret_cast<void*>(a.address), a.sizes,
                          a.strides, lower, upper, a.channels, a.pixels, a.element_strides,
                          static_cast<CUtensorMapInterleave>(a.modes[0]),
                          static_cast<CUtensorMapSwizzle>(a.modes[1]),
                          static_cast<CUtensorMapL2promotion>(a.modes[2]),
                          static_cast<CUtensorMapFloatOOBfill>(a.modes[3]));
  return answer(session, header, "cuTensorMapEncodeIm2col", code, map);
}

}  // namespace pyft::server
