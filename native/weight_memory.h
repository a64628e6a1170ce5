// Memory for packed weights, in large pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace foredraft {

// Weights are read from end to end for every token. In pages of 2 MiB, where the system gives them, that costs far
// fewer look-ups of addresses than in pages of 4 KiB; and weights must share pieces, or the small ones would waste them.
// What was handed out is given back all at once, when the object dies.
class WeightMemory {
 public:
  WeightMemory() = default;
  ~WeightMemory();
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;

  // `size` bytes, aligned to 64, contents arbitrary. Throws std::bad_alloc.
  uint8_t* allocate(size_t size);

 private:
  std::mutex mutex_;
  std::vector<uint8_t*> pieces_;
  uint8_t* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace foredraft
