// Transport at costs that are small whole numbers, a primal-dual method on sets of rows.
//
// Graphs with edges of one length have few distances: 0 to 3 edges around an undirected edge. What a column has to know of the rows
// is then one set for each distance, kept as bits. Potentials are whole numbers too. Rows with the same potential form a set, and
// the rows at which a column is tight (cost = sum of the two potentials) are found with a few words of logic.
//
// Columns start at the price of their nearest row. In each phase columns take what tight rows have left, directly or along a chain
// in which a row moves from one column to another (breadth first). When no chain is left, the price of all columns that miss
// something rises. It can rise by the largest cost at most, so there are as many phases as there are distances.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "hop_masses.hpp"
#include "merge.hpp"
#include "small_hops.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

class HopTransport {
  public:
    using Word = std::uint64_t;
    // Filled by the caller. `rows` is the set of rows, `supply` holds 64 numbers for each of its words; `levels` for each column the
    // rows at distance 1, 2, ..., `words` words each.
    std::vector<double> supply, demand;
    std::vector<Word> rows, levels;

    double value = 0, gap = 0;  // cost of the flow in edges; its distance to the optimum at most
    bool stuck = false;         // more mass than rounding explains has nowhere to go
    static constexpr bool stalled = false;

    void clear(int words, int distances) {
        words_ = words, distances_ = distances;
        supply.resize(std::size_t(words_) * 64), rows.assign(words_, 0), demand.clear(), levels.clear();
    }

    void solve() {
        value = gap = 0, stuck = false;
        merge_(levels, std::size_t(distances_) * words_, demand);
        columns_ = int(demand.size());
        if (words_ == 1 && columns_ <= SmallHops::MOST && small_.solve(rows[0], supply, demand, levels.data(), distances_)) {
            value = small_.value, gap = small_.gap, stuck = small_.stuck;
            return;
        }
        row_left_.resize(std::size_t(words_) * 64), column_left_.resize(columns_);
        if (!masses_.weigh(rows.data(), words_, supply, demand, row_left_.data(), column_left_.data())) return;
        start();
        while (!open_.empty()) {
            phase();
            if (open_.empty() || !raise()) break;
        }
        sum_up();
    }

  private:
    int words_ = 1, distances_ = 0, columns_ = 0;
    Merge merge_;
    SmallHops small_;
    HopMasses masses_;
    std::vector<std::int64_t> row_left_, column_left_, row_mass_, column_mass_;
    std::vector<Word> free_, dead_, seen_, front_, next_, tight_, givers_,
        equal_;  // givers: rows whose mass a column has; equal_[p]: rows of potential -p
    std::vector<int> price_, open_, wanted_, choice_, seen_in_, dead_columns_, from_column_, from_row_;
    std::vector<std::uint8_t> is_dead_;
    struct Arc {
        int row;
        std::int64_t amount;
        int next;
    };
    std::vector<Arc> arcs_;
    std::vector<int> first_arc_;
    int searches_ = 0;

    Word* set(std::vector<Word>& sets, int k) const { return sets.data() + std::size_t(k) * words_; }
    const Word* level(int j, int k) const { return levels.data() + (std::size_t(j) * distances_ + k) * words_; }

    template <class Use> void each_row(const Word* set, Use use) const {
        for (int w = 0; w < words_; ++w)
            for (Word rest = set[w]; rest != 0; rest &= rest - 1) use(64 * w + std::countr_zero(rest));
    }

    // Prices; then the order of columns, those with the fewest rows first, and of rows, those that the fewest columns want first:
    // hardly a chain is left to search.
    void start() {
        row_mass_ = row_left_, column_mass_ = column_left_;
        open_.clear();
        for (int j = 0; j < columns_; ++j)
            if (column_left_[j] > 0) open_.push_back(j);
        free_.assign(words_, 0), seen_.resize(words_), front_.resize(words_), next_.resize(words_), tight_.resize(words_);
        wanted_.resize(std::size_t(words_) * 64), from_column_.resize(std::size_t(words_) * 64);
        each_row(rows.data(), [&](int i) {
            wanted_[i] = 0;
            if (row_left_[i] > 0) free_[i / 64] |= Word(1) << (i % 64);
        });
        equal_.assign(free_.begin(), free_.end());
        givers_.assign(std::size_t(columns_) * words_, 0);
        price_.resize(columns_), choice_.resize(columns_), from_row_.resize(columns_);
        seen_in_.assign(columns_, 0), is_dead_.assign(columns_, 0), searches_ = 0;
        arcs_.clear(), first_arc_.assign(columns_, -1);
        for (int j = 0; j < columns_; ++j) {
            price_[j] = 0, choice_[j] = 0;
            while (price_[j] + 1 < distances_ && none(level(j, price_[j]))) ++price_[j];
            each_row(level(j, price_[j]), [&](int i) { ++wanted_[i], ++choice_[j]; });
            if (choice_[j] == 1)  // the later the next row comes
                for (int k = price_[j] + 1; k < distances_ && none(level(j, k)); ++k) --choice_[j];
        }
        std::sort(open_.begin(), open_.end(), [&](int a, int b) { return choice_[a] < choice_[b] || (choice_[a] == choice_[b] && a < b); });
    }

    bool none(const Word* words) const {
        Word any = 0;
        for (int w = 0; w < words_; ++w) any |= words[w];
        return any == 0;
    }

    // tight_ = rows, not dead, for which a price of `price` is the sum of cost and what the row asks
    bool find_tight(int j, int price) {
        Word any = 0;
        const int highest = std::min(price, int(equal_.size()) / words_ - 1);
        for (int w = 0; w < words_; ++w) {
            Word found = 0;
            for (int p = std::max(0, price - distances_ + 1); p <= highest; ++p)
                found |= level(j, price - p)[w] & equal_[std::size_t(p) * words_ + w];
            any |= tight_[w] = found & ~dead_[w];
        }
        return any != 0;
    }

    // Of the rows that have something left the one that the fewest columns want, or -1.
    int rarest_free(const Word* set) const {
        int best = -1;
        for (int w = 0; w < words_; ++w)
            for (Word rest = set[w] & free_[w]; rest != 0; rest &= rest - 1) {
                const int i = 64 * w + std::countr_zero(rest);
                if (best < 0 || wanted_[i] < wanted_[best]) best = i;
            }
        return best;
    }

    std::int64_t& flow(int i, int j) {
        int k = first_arc_[j];
        while (k >= 0 && arcs_[k].row != i) k = arcs_[k].next;
        if (k < 0) {
            k = int(arcs_.size());
            arcs_.push_back({i, 0, first_arc_[j]});
            first_arc_[j] = k;
        }
        return arcs_[k].amount;
    }
    void give(int i, int j, std::int64_t amount) {
        Word& giver = set(givers_, j)[i / 64];
        const Word bit = Word(1) << (i % 64);
        std::int64_t& its = flow(i, j);
        its = (giver & bit ? its : 0) + amount;
        if (its != 0) giver |= bit;
        else giver &= ~bit;
    }
    void take(int i, std::int64_t amount) {
        if ((row_left_[i] -= amount) == 0) free_[i / 64] &= ~(Word(1) << (i % 64));
    }

    // Satisfy what tight rows can; the columns that stay open are dead, with all that they reach.
    void phase() {
        dead_.assign(words_, 0), dead_columns_.clear();
        std::size_t kept = 0;
        for (const int j : open_) {
            while (column_left_[j] > 0 && !is_dead_[j] && find_tight(j, price_[j])) {
                const int i = rarest_free(tight_.data());
                if (i < 0) {
                    if (!search(j)) break;
                    continue;
                }
                const std::int64_t amount = std::min(row_left_[i], column_left_[j]);
                give(i, j, amount), take(i, amount), column_left_[j] -= amount;
            }
            if (column_left_[j] == 0) continue;
            open_[kept++] = j;
            if (!is_dead_[j]) is_dead_[j] = 1, dead_columns_.push_back(j);
        }
        open_.resize(kept);
    }

    // From an open column over its tight rows (in tight_) to a row with something left, and move along that way.
    bool search(int open) {
        ++searches_;
        seen_in_[open] = searches_;
        seen_ = front_ = tight_;
        each_row(tight_.data(), [&](int i) { from_column_[i] = open; });
        const std::size_t known = dead_columns_.size();
        dead_columns_.push_back(open);
        for (bool more = true; more;) {
            more = false;
            next_.assign(words_, 0);
            for (int c = 0; c < columns_; ++c) {
                if (is_dead_[c] || seen_in_[c] == searches_) continue;
                const Word* givers = set(givers_, c);
                int w = 0;
                while (w < words_ && (givers[w] & front_[w]) == 0) ++w;
                if (w == words_) continue;
                from_row_[c] = 64 * w + std::countr_zero(givers[w] & front_[w]);
                seen_in_[c] = searches_;
                dead_columns_.push_back(c);
                if (!find_tight(c, price_[c])) continue;
                for (int v = 0; v < words_; ++v) {
                    tight_[v] &= ~seen_[v];
                    seen_[v] |= tight_[v], next_[v] |= tight_[v];
                    more |= tight_[v] != 0;
                }
                each_row(tight_.data(), [&](int i) { from_column_[i] = c; });
                if (const int i = rarest_free(tight_.data()); i >= 0) {
                    augment(open, i);
                    dead_columns_.resize(known);
                    return true;
                }
            }
            front_.swap(next_);
        }
        for (std::size_t k = known; k < dead_columns_.size(); ++k) is_dead_[dead_columns_[k]] = 1;
        for (int w = 0; w < words_; ++w) dead_[w] |= seen_[w];
        return false;
    }

    void augment(int open, int last) {
        std::int64_t amount = std::min(row_left_[last], column_left_[open]);
        for (int i = last, c; (c = from_column_[i]) != open; i = from_row_[c]) amount = std::min(amount, flow(from_row_[c], c));
        take(last, amount), column_left_[open] -= amount;
        for (int i = last;;) {
            const int c = from_column_[i];
            give(i, c, amount);
            if (c == open) break;
            i = from_row_[c];
            give(i, c, -amount);
        }
    }

    // The price of dead columns rises, and what dead rows ask, until a row that lives is tight; false if none can be.
    bool raise() {
        int by = std::numeric_limits<int>::max();
        const int asked = int(equal_.size()) / words_;
        for (const int j : dead_columns_)
            for (int more = 1; more < by && price_[j] + more < distances_ + asked; ++more)
                if (find_tight(j, price_[j] + more)) by = more;
        if (by == std::numeric_limits<int>::max()) return false;
        equal_.resize(std::size_t(asked + by) * words_, 0);
        for (int p = asked - 1; p >= 0; --p)
            for (int w = 0; w < words_; ++w) {
                const Word moved = set(equal_, p)[w] & dead_[w];
                set(equal_, p)[w] &= ~moved, set(equal_, p + by)[w] |= moved;
            }
        for (const int j : dead_columns_) price_[j] += by, is_dead_[j] = 0;
        return true;
    }

    void sum_up() {
        const int asked = int(equal_.size()) / words_;
        HopSum sum;
        for (int j = 0; j < columns_; ++j) {
            sum.column(price_[j], column_mass_[j], column_left_[j]);
            for (int k = 0; k < distances_; ++k)
                for (int w = 0; w < words_; ++w) {
                    const Word at = level(j, k)[w];
                    for (int p = 0; p < std::min(asked, price_[j] - k); ++p)
                        sum.feasible &= (at & equal_[std::size_t(p) * words_ + w]) == 0;
                    for (Word rest = k > 0 ? at & set(givers_, j)[w] : 0; rest != 0; rest &= rest - 1)
                        sum.flow(k, flow(64 * w + std::countr_zero(rest), j));
                }
        }
        for (int p = 1; p < asked; ++p) each_row(set(equal_, p), [&](int i) { sum.row(p, row_mass_[i] - row_left_[i]); });
        sum.finish(masses_, columns_, distances_, value, gap, stuck);
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA
