// Working memory of a call, kept by its thread for the next one.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

namespace geoattn::encoder::GEOATTN_ISA {

class Scratch {
  public:
    // So many floats, on a cache line; what is in them is left over.
    float* take(std::size_t count) {
        if (used_ == blocks().size()) blocks().emplace_back();
        Block& block = blocks()[used_++];
        if (block.size < count) block.memory.reset(new float[count + 16]), block.size = count;
        void* at = block.memory.get();
        std::size_t room = (count + 16) * sizeof(float);
        return static_cast<float*>(std::align(64, count * sizeof(float), at, room));
    }

    // Rows of a chunk, and the distance between two of them: not a multiple of 256 bytes, which would share few sets of a cache.
    float* rows(int count, int width) { return take(std::size_t(count) * stride(width)); }
    static int stride(int width) { return width + 16; }

  private:
    struct Block {
        std::unique_ptr<float[]> memory;
        std::size_t size = 0;
    };
    static std::vector<Block>& blocks() {
        thread_local std::vector<Block> kept;
        return kept;
    }
    std::size_t used_ = 0;
};

}  // namespace geoattn::encoder::GEOATTN_ISA
