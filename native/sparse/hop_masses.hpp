// Masses as whole numbers, and the sum of what was moved, for transport at costs that are whole numbers of edges.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "../stray.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

__extension__ typedef __int128 Wide;

struct HopMasses {
    double unit = 0;           // mass of one
    std::int64_t excess = 0;   // units that rounding adds

    // The total stays below 2^58. `rows` are sets of 64, of which the bits say which supplies count. False: nothing is to be moved.
    bool weigh(const std::uint64_t* rows, int words, const std::vector<double>& supply, const std::vector<double>& demand,
               std::int64_t* row_units, std::int64_t* column_units) {
        const auto each = [&](auto use) {
            for (int w = 0; w < words; ++w)
                for (std::uint64_t rest = rows[w]; rest != 0; rest &= rest - 1) use(64 * w + std::countr_zero(rest));
        };
        double total = 0, other = 0;
        each([&](int i) { total += supply[i]; });
        for (const double d : demand) other += d;
        if (!(total > 0) || !(other > 0)) return false;
        int exponent;
        std::frexp(std::max(total, other), &exponent);
        exponent = std::max(exponent, -900);  // what is smaller is nothing
        const double scale = std::ldexp(1.0, 58 - exponent);
        unit = std::ldexp(1.0, exponent - 58);
        std::int64_t sum = 0, count = std::int64_t(demand.size());
        int heaviest_row = -1, heaviest_column = 0;
        each([&](int i) {
            sum += row_units[i] = std::int64_t(supply[i] * scale);
            ++count;
            if (heaviest_row < 0 || row_units[i] > row_units[heaviest_row]) heaviest_row = i;
        });
        for (int j = 0; j < int(demand.size()); ++j) {
            sum -= column_units[j] = std::int64_t(demand[j] * scale);
            if (column_units[j] > column_units[heaviest_column]) heaviest_column = j;
        }
        if (sum > 0) column_units[heaviest_column] += sum;  // the two sums differ by the rounding of the measures
        else row_units[heaviest_row] -= sum;
        excess = (sum > 0 ? sum : -sum) + count;
        return true;
    }
};

// Cost of the flow, and of the potentials, which bound it from below if no column could buy for less. Level k costs k + 1 edges.
struct HopSum {
    Wide primal = 0, dual = 0;
    std::int64_t moved = 0, lost = 0;
    bool feasible = true;

    void column(int price, std::int64_t mass, std::int64_t left) {
        lost += left, moved += mass - left;
        dual += Wide(price) * (mass - left);
    }
    void row(int asks, std::int64_t given) { dual -= Wide(asks) * given; }
    void flow(int level, std::int64_t amount) { primal += Wide(level) * amount; }

    void finish(const HopMasses& masses, int columns, int distances, double& value, double& gap, bool& stuck) const {
        stuck = double(lost - masses.excess) * masses.unit > STRAY;
        value = double(primal + moved) * masses.unit;
        gap = feasible ? std::abs(double(primal - dual)) * masses.unit : std::numeric_limits<double>::infinity();
        gap += double(lost) * masses.unit * distances + (columns + 8) * std::numeric_limits<double>::epsilon() * value;
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA
