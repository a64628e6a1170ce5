#include "weight_memory.h"

#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace foredraft {
namespace {

constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kPiece = size_t{32} << 20;

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

WeightMemory::~WeightMemory() {
  for (uint8_t* piece : pieces_) ::operator delete(piece, std::align_val_t{kPage});
}

uint8_t* WeightMemory::allocate(size_t size) {
  const size_t needed = round_up(size, 64);
  std::lock_guard<std::mutex> lock(mutex_);
  if (needed > left_) {
    const size_t piece = round_up(needed > kPiece ? needed : kPiece, kPage);
    pieces_.reserve(pieces_.size() + 1);  // first, so that nothing can fail once the piece is there
    next_ = static_cast<uint8_t*>(::operator new(piece, std::align_val_t{kPage}));
    pieces_.push_back(next_);
    left_ = piece;
#if defined(__linux__)
    madvise(next_, piece, MADV_HUGEPAGE);  // a wish; without it all works the same
#endif
  }
  uint8_t* const result = next_;
  next_ += needed;
  left_ -= needed;
  return result;
}

}  // namespace foredraft
