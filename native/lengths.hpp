// The lengths of a network, and the same a little shorter, so that no two ways are equally long.
//
// Equal lengths make a simplex method stand still: many edges become tight at once, and most pivots move nothing. Each
// edge is therefore shortened by a share of its own of at most SHARE. Searches and pivots see the shortened lengths;
// values and certificates the given ones. A tree that is optimal for one is optimal for the other but for ties.
#pragma once
#include <cstddef>
#include <cstdint>

#include "simd_float.hpp"

namespace geoattn::GEOATTN_ISA {

class Lengths {
  public:
    static constexpr double SHARE = 0x1p-40;

    Lengths() = default;
    // Rows of n lengths, infinite where there is no edge. What is on the diagonal does not matter.
    Lengths(const double* data, int n, double share = SHARE) : data_(data), n_(n), unit_(share * 0x1p-31), mark_(n) {
        std::uint64_t state = 0x9e3779b97f4a7c15ull;
        for (std::uint32_t& mark : mark_) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            mark = std::uint32_t(state >> 32) | 1;
        }
    }

    int size() const { return n_; }
    const double* row(int u) const { return data_ + std::size_t(u) * n_; }
    double given(int u, int v) const { return row(u)[v]; }
    double operator()(int u, int v) const { return given(u, v) * factor(u, v); }
    double factor(int u, int v) const { return 1.0 - unit_ * double(std::int32_t((mark_[u] * mark_[v]) >> 1)); }

    // min over v of the length u -> v plus more[v], and where it is
    double least(int u, const double* more, int& at) const { return least_sum(row(u), mark_.data(), mark_[u], unit_, more, n_, at); }

    double least_given(int u, const double* more, int& at) const { return least_sum(row(u), mark_.data(), mark_[u], 0.0, more, n_, at); }

    // Ways from the source over u, which is `base` away: to[v] = min(to[v], base + length), and via[v] = u where that is new.
    // Returns the largest to[v] - nearest[v].
    double relax(int u, double base, double* to, double* via, const double* nearest) const {
        return relax_over(row(u), mark_.data(), mark_[u], unit_, base, u, to, via, nearest, n_);
    }

  private:
    const double* data_ = nullptr;
    int n_ = 0;
    double unit_ = 0;
    Row<std::uint32_t> mark_;
};

}  // namespace geoattn::GEOATTN_ISA
