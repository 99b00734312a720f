// The distances of a map that has few different ones, as sets of bits: what is how far away from whom.
//
// Unweighted graphs, uniform rows and whole lengths have a handful of distances. Shortening tells two equal ones apart by 2^-40 of
// them at most, so that distances which agree up to that are one level. Where all lengths are multiples of the shortest one, so are the
// distances, and a level is known as exactly as the lengths are.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lengths.hpp"

namespace geoattn::GEOATTN_ISA {

class Levels {
  public:
    static constexpr int KEPT = 16;  // the shortest ones

    Levels() = default;

    // Of the distances between all nodes, infinite ones among them. Empty if there are more than n / 4 different ones, or two that hardly
    // differ.
    Levels(const double* distances, const Lengths& lengths, double reach) : n_(lengths.size()), words_((n_ + 63) / 64) {
        const int n = n_;
        scale_ = BUCKETS / reach, near_ = 4 * Lengths::SHARE * reach;
        if (!(scale_ > 0 && scale_ < INF)) return;
        at_.assign(BUCKETS + 2, -1);
        const std::size_t most = std::size_t(n) / 4;
        for (int u = 0; u < n; ++u)
            for (int v = 0; v < n; ++v) {
                const double d = distances[std::size_t(u) * n + v];
                if (u == v || !(d < INF)) continue;
                const int level = find(d);
                if (level >= 0) {
                    length_[level] = std::min(length_[level], d);
                } else if (length_.size() == most || at_[bucket(d)] >= 0) {
                    length_.clear();
                    return;
                } else {
                    at_[bucket(d)] = int(length_.size());
                    named_.push_back(d), length_.push_back(d);
                }
            }
        fill(distances);
        round_up(lengths);
    }

    int count() const { return int(length_.size()); }  // 0: the map has many
    int words() const { return words_; }
    double length(int k) const { return length_[k]; }  // of the k-th level, ascending: no distance in it is shorter
    double beyond() const { return beyond_; }          // no distance that is in no level is shorter
    const std::uint64_t* from(int u, int k) const { return &sets_[(std::size_t(u) * length_.size() + k) * words_]; }

  private:
    static constexpr int BUCKETS = 10000;
    int n_ = 0, words_ = 0;
    double scale_ = 0, near_ = 0, beyond_ = INF;
    std::vector<int> at_;                // the level whose first distance is in this bucket, or -1
    std::vector<double> named_, length_; // the first distance that was seen of a level, and the least
    Row<std::uint64_t> sets_;

    int bucket(double d) const { return int(d * scale_); }

    int find(double d) const {
        const int b = bucket(d);
        for (int k = std::max(b - 1, 0); k <= b + 1; ++k)
            if (const int level = at_[k]; level >= 0 && std::fabs(named_[level] - d) <= near_) return level;
        return -1;
    }

    void round_up(const Lengths& lengths) {
        double unit = INF;
        const auto each = [&](auto visit) {
            for (int u = 0; u < n_; ++u)
                for (int v = 0; v < n_; ++v)
                    if (const double length = lengths.given(u, v); u != v && length < INF) visit(length);
        };
        each([&](double length) { unit = std::min(unit, length); });
        bool whole = near_ < 1e-5 * unit;  // or a level might hold several multiples
        each([&](double length) { whole = whole && std::nearbyint(length / unit) * unit == length; });
        for (double& length : length_) length = whole ? std::nearbyint(length / unit) * unit : length;
        if (whole && beyond_ < INF) beyond_ = std::nearbyint(beyond_ / unit) * unit;
    }

    void fill(const double* distances) {
        std::vector<int> order(length_.size()), rank(length_.size());
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int a, int b) { return length_[a] < length_[b]; });
        std::vector<double> sorted;
        for (std::size_t k = 0; k < order.size(); ++k) rank[order[k]] = int(k), sorted.push_back(length_[order[k]]);
        if (sorted.size() > KEPT) beyond_ = sorted[KEPT], sorted.resize(KEPT);
        const std::size_t levels = sorted.size();
        sets_.assign(std::size_t(n_) * levels * words_, 0);
        for (int u = 0; u < n_; ++u)
            for (int v = 0; v < n_; ++v) {
                const double d = distances[std::size_t(u) * n_ + v];
                if (u == v || !(d < INF)) continue;
                if (const std::size_t k = std::size_t(rank[find(d)]); k < levels)
                    sets_[(std::size_t(u) * levels + k) * words_ + (v >> 6)] |= 1ull << (v & 63);
            }
        length_ = std::move(sorted);
    }
};

}  // namespace geoattn::GEOATTN_ISA
