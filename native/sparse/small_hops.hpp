// The method of hop_transport.hpp for at most 64 rows and 64 columns: each set is one word, and sets of columns are words too.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "hop_masses.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

class SmallHops {
  public:
    using Word = std::uint64_t;
    static constexpr int MOST = 64;

    double value = 0, gap = 0;
    bool stuck = false;
    static constexpr bool stalled = false;

    // supply by row; levels: (columns, distances). Afterwards value, gap, stuck are known; false: the prices have left their range.
    bool solve(Word rows, const std::vector<double>& supply, const std::vector<double>& demand, const Word* levels, int distances) {
        value = gap = 0, stuck = false;
        levels_ = levels, distances_ = distances, columns_ = int(demand.size());
        if (!masses_.weigh(&rows, 1, supply, demand, row_left_, column_left_)) return true;
        std::copy_n(column_left_, columns_, column_mass_);
        start(rows);
        for (Word open = open_; open != 0;) {
            open = phase(open);
            if (open == 0) break;
            if (asked_ + distances_ >= MOST) return false;
            if (!raise()) break;
        }
        sum_up();
        return true;
    }

  private:
    HopMasses masses_;
    const Word* levels_ = nullptr;
    int distances_ = 0, columns_ = 0, asked_ = 1;
    Word free_ = 0, open_ = 0, dead_ = 0, dead_columns_ = 0;
    std::int64_t row_left_[MOST], column_left_[MOST], column_mass_[MOST], flow_[MOST][MOST];  // flow: by column
    Word tight_[MOST], givers_[MOST], takers_[MOST], equal_[MOST];  // equal_[p]: rows of potential -p
    int price_[MOST], wanted_[MOST], order_[MOST];
    std::uint8_t from_column_[MOST], from_row_[MOST];

    Word level(int j, int k) const { return levels_[j * distances_ + k]; }

    void start(Word rows) {
        free_ = open_ = 0, asked_ = 1;
        for (Word rest = rows; rest != 0; rest &= rest - 1) {
            const int i = std::countr_zero(rest);
            wanted_[i] = 0, takers_[i] = 0;
            if (row_left_[i] > 0) free_ |= rest & -rest;
        }
        equal_[0] = free_;
        int bucket[MOST + 2] = {}, choice[MOST];
        for (int j = 0; j < columns_; ++j) {
            int k = 0;
            while (k + 1 < distances_ && level(j, k) == 0) ++k;
            price_[j] = k, givers_[j] = 0, tight_[j] = level(j, k) & free_;
            if (column_left_[j] > 0) open_ |= Word(1) << j;
            for (Word rest = tight_[j]; rest != 0; rest &= rest - 1) ++wanted_[std::countr_zero(rest)];
            choice[j] = std::popcount(tight_[j]);
            if (choice[j] == 1 && (k + 1 >= distances_ || (level(j, k + 1) & free_) == 0)) choice[j] = 0;  // no other row soon
            ++bucket[choice[j] + 1];
        }
        for (int c = 0; c <= MOST; ++c) bucket[c + 1] += bucket[c];
        for (int j = 0; j < columns_; ++j) order_[bucket[choice[j]]++] = j;
    }

    // Rows, not dead, for which a price is the sum of the cost and what the row asks.
    Word tight(int j, int price) const {
        Word found = 0;
        for (int p = std::max(0, price - distances_ + 1); p <= std::min(price, asked_ - 1); ++p) found |= level(j, price - p) & equal_[p];
        return found;
    }

    void give(int i, int j, std::int64_t amount) {
        const Word row = Word(1) << i, column = Word(1) << j;
        const std::int64_t now = (givers_[j] & row ? flow_[j][i] : 0) + amount;
        flow_[j][i] = now;
        if (now != 0) givers_[j] |= row, takers_[i] |= column;
        else givers_[j] &= ~row, takers_[i] &= ~column;
    }
    void take(int i, std::int64_t amount) {
        if ((row_left_[i] -= amount) == 0) free_ &= ~(Word(1) << i);
    }
    int rarest(Word rows) const {
        int best = std::countr_zero(rows);
        for (rows &= rows - 1; rows != 0; rows &= rows - 1)
            if (const int i = std::countr_zero(rows); wanted_[i] < wanted_[best]) best = i;
        return best;
    }

    // Satisfy what tight rows can; returns the columns that stay open: they are dead, with all that they reach.
    Word phase(Word open) {
        dead_ = dead_columns_ = 0;
        for (int k = 0; k < columns_; ++k) {
            const int j = order_[k];
            const Word column = Word(1) << j;
            if ((open & column) == 0) continue;
            while ((dead_columns_ & column) == 0 && column_left_[j] > 0) {
                if (const Word can = tight_[j] & free_; can != 0) {
                    const int i = rarest(can);
                    const std::int64_t amount = std::min(row_left_[i], column_left_[j]);
                    give(i, j, amount), take(i, amount), column_left_[j] -= amount;
                } else if (!search(j)) {
                    break;
                }
            }
            if (column_left_[j] == 0) open &= ~column;
        }
        return open;
    }

    bool search(int open) {
        Word rows = tight_[open] & ~dead_, columns = Word(1) << open, front = rows;
        for (Word rest = rows; rest != 0; rest &= rest - 1) from_column_[std::countr_zero(rest)] = std::uint8_t(open);
        while (front != 0) {
            const int r = std::countr_zero(front);
            front &= front - 1;
            Word next = takers_[r] & ~columns & ~dead_columns_;
            columns |= next;
            for (; next != 0; next &= next - 1) {
                const int c = std::countr_zero(next);
                from_row_[c] = std::uint8_t(r);
                const Word fresh = tight_[c] & ~rows & ~dead_;
                if (const Word can = fresh & free_; can != 0) {
                    const int i = rarest(can);
                    from_column_[i] = std::uint8_t(c);
                    augment(open, i);
                    return true;
                }
                rows |= fresh, front |= fresh;
                for (Word rest = fresh; rest != 0; rest &= rest - 1) from_column_[std::countr_zero(rest)] = std::uint8_t(c);
            }
        }
        dead_ |= rows, dead_columns_ |= columns;
        return false;
    }

    void augment(int open, int last) {
        std::int64_t amount = std::min(row_left_[last], column_left_[open]);
        for (int c = from_column_[last]; c != open; c = from_column_[from_row_[c]]) amount = std::min(amount, flow_[c][from_row_[c]]);
        take(last, amount), column_left_[open] -= amount;
        for (int i = last;;) {
            const int c = from_column_[i];
            give(i, c, amount);
            if (c == open) break;
            i = from_row_[c];
            give(i, c, -amount);
        }
    }

    bool raise() {
        int by = MOST;
        for (Word rest = dead_columns_; rest != 0; rest &= rest - 1) {
            const int j = std::countr_zero(rest);
            for (int more = 1; more < by && price_[j] + more < distances_ + asked_; ++more)
                if ((tight(j, price_[j] + more) & ~dead_) != 0) by = more;
        }
        if (by == MOST) return false;
        for (int p = asked_; p < asked_ + by; ++p) equal_[p] = 0;
        for (int p = asked_ - 1; p >= 0; --p) {
            const Word moved = equal_[p] & dead_;
            equal_[p] &= ~moved, equal_[p + by] |= moved;
        }
        asked_ += by;
        for (Word rest = dead_columns_; rest != 0; rest &= rest - 1) price_[std::countr_zero(rest)] += by;
        for (int j = 0; j < columns_; ++j) tight_[j] = tight(j, price_[j]);
        return true;
    }

    void sum_up() {
        HopSum sum;
        for (int j = 0; j < columns_; ++j) {
            sum.column(price_[j], column_mass_[j], column_left_[j]);
            Word dearer = 0;  // rows that ask less than the price leaves for them
            for (int k = std::min(price_[j], distances_) - 1, p = 0; k >= 0; --k) {
                for (; p < asked_ && p < price_[j] - k; ++p) dearer |= equal_[p];
                sum.feasible &= (level(j, k) & dearer) == 0;
            }
            for (Word rest = givers_[j]; rest != 0; rest &= rest - 1) {
                const int i = std::countr_zero(rest);
                int k = 0;
                while ((level(j, k) >> i & 1) == 0) ++k;
                sum.flow(k, flow_[j][i]);
            }
        }
        for (int p = 1; p < asked_; ++p)
            for (Word rest = equal_[p]; rest != 0; rest &= rest - 1) {
                std::int64_t given = 0;
                const int i = std::countr_zero(rest);
                for (Word to = takers_[i]; to != 0; to &= to - 1) given += flow_[std::countr_zero(to)][i];
                sum.row(p, given);
            }
        sum.finish(masses_, columns_, distances_, value, gap, stuck);
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA
