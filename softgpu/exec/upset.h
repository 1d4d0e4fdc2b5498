// Upsets and stuck bits in the instructions of a launch. A launch that has none runs without any of
// this: block.cc chooses once per turn of a warp.
#ifndef SOFTGPU_EXEC_UPSET_H_
#define SOFTGPU_EXEC_UPSET_H_

#include <array>
#include <vector>

#include "core/upset.h"
#include "exec/warp.h"

namespace softgpu::exec {

inline constexpr uint32_t kMostRows = 4;  // that an instruction writes

// Blocks run one after the other while there is one, so what is hit follows from the seed alone.
class UpsetRun {
 public:
  UpsetRun(const LaunchState& state, Upsets* upsets);

  // Around each instruction that is executed.
  void before(const Inst* in, Warp* warp);
  void after(const Inst* in, Warp* warp, uint32_t exec);

 private:
  // What is known of an instruction without running it.
  struct Target {
    const char* mnemonic = "";
    bool writes = false, uniform = false;
    uint8_t rd = 0;
    Unit unit = Unit::kAlu;
  };
  // Where an upset is due, if it is not the n-th instruction of the launch.
  struct Place {
    uint64_t block = 0, warp = 0, instruction = 0;
    uint64_t seen = 0;  // there, or in the launch
  };

  const Target& target(const Inst* in) const;
  void read_code(const Kernel& kernel);
  Place drawn_place(const LaunchState& state, const Upset& upset) const;
  bool due(const Upset& upset, Place* place, const Target& target, const Warp* warp) const;
  void hit(Upset* upset, const Inst* in, Warp* warp, uint32_t exec);
  void stick(Upset* upset, const Inst* in, Warp* warp, uint32_t exec);
  uint32_t written_rows(const Inst* in, Warp* warp, uint32_t exec) const;
  std::string where(const Inst* in, const Warp* warp, uint32_t lane, uint32_t row) const;

  const Inst* code_;
  std::vector<Target> targets_;
  Upsets* upsets_;
  std::vector<Place> places_;
  std::array<Row, kMostRows> before_{};
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_UPSET_H_
