// Nodes that see all others at the same distances are one node to the transport problem: their masses add up.
//
// Around a hub of an unweighted graph most neighbours are alike, so that a problem of some thousand columns has a few dozen.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

namespace geoattn::sparse::GEOATTN_ISA {

class Merge {
  public:
    // `lines` holds a line of `width` words for each mass; equal ones become one, in the order of the first.
    void operator()(std::vector<std::uint64_t>& lines, std::size_t width, std::vector<double>& masses) {
        const std::size_t count = masses.size();
        std::size_t slots = 16;
        while (slots < 2 * count) slots *= 2;
        table_.assign(slots, -1);
        std::size_t kept = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const std::uint64_t* line = lines.data() + k * width;
            std::size_t slot = hash(line, width) & (slots - 1);
            while (table_[slot] >= 0 && std::memcmp(lines.data() + std::size_t(table_[slot]) * width, line, 8 * width) != 0)
                slot = (slot + 1) & (slots - 1);
            if (table_[slot] >= 0) {
                masses[std::size_t(table_[slot])] += masses[k];
                continue;
            }
            table_[slot] = std::int32_t(kept);
            if (kept != k) std::memcpy(lines.data() + kept * width, line, 8 * width), masses[kept] = masses[k];
            ++kept;
        }
        masses.resize(kept), lines.resize(kept * width);
    }

  private:
    std::vector<std::int32_t> table_;

    static std::size_t hash(const std::uint64_t* line, std::size_t width) {
        std::uint64_t h = 1469598103934665603u;
        for (std::size_t k = 0; k < width; ++k) {
            h = (h ^ line[k]) * 0x9e3779b97f4a7c15u;
            h ^= h >> 29;
        }
        return std::size_t(h ^ h >> 32);
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA
