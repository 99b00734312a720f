// The transportation simplex for one pair: rows send what columns miss, at costs c(i, j).
//
// A basis is a spanning tree of rows and columns. Masses are whole numbers of 128 bits, of which the lowest perturb them so that no
// basis is degenerate: each row has one unit more, the last column as many as there are rows. Every pivot then lowers the
// cost, and ties, which are the rule on unweighted graphs, cannot stall it. The start gives each column, those with the
// most to lose first, to its cheapest rows: optimal for two rows, near to it for few.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "../stray.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

__extension__ typedef __int128 Mass;

struct Flow {
    int row, column;
    double amount;
};

template <class Cost> class Transport {
  public:
    // Filled by the caller: masses, costs (rows x columns), infinite ones as `far` or more.
    std::vector<long double> supply, demand;
    std::vector<Cost> cost;
    double far = std::numeric_limits<double>::infinity();
    double largest = 0;  // of the other costs: what it may cost that the two sums differ, or that a mass is rounded
    double rounded = 0;  // how much of the masses that may be

    double value = 0, gap = 0;  // cost of the flow; its distance to the optimum at most
    bool stuck = false;         // more mass than rounding explains has nowhere to go
    bool stalled = false;

    void clear() { supply.clear(), demand.clear(), cost.clear(); }
    double potential_of_row(int i) const { return double(potential_[std::size_t(i)]); }
    double potential_of_column(int j) const { return double(potential_[std::size_t(rows_ + j)]); }

    void solve() {
        rows_ = int(supply.size()), columns_ = int(demand.size()), nodes_ = rows_ + columns_;
        value = gap = 0, stalled = stuck = false;
        if (rows_ == 0 || columns_ == 0) return;
        weigh();
        start();
        pivot_all();
        sum_up();
    }

    template <class Use> void each_flow(Use use) const {
        for (int v = 0; v < nodes_; ++v)
            if (parent_[v] >= 0) {
                const int i = v < rows_ ? v : parent_[v], j = (v < rows_ ? parent_[v] : v) - rows_;
                use(Flow{i, j, double(flow_[v]) * unit_});
            }
    }

  private:
    int rows_ = 0, columns_ = 0, nodes_ = 0;
    double unit_ = 0;        // mass of one unit
    double uneven_ = 0;      // by how much the sums of supply and demand differ
    std::vector<double> mass_, fix_;
    Mass excess_ = 0;                            // units that rounding adds
    std::vector<Mass> left_, flow_;              // flow_[v]: on the tree edge between v and its parent
    std::vector<Cost> potential_, slack_, loose_;
    int root_ = 0;  // the heaviest row: what is near it, and has most of the mass, gets exact potentials
    std::vector<int> parent_, depth_, first_, next_, before_, stack_, order_, degree_;
    struct Arc {
        int row, column;
        Mass flow;
    };
    std::vector<Arc> arcs_;
    std::vector<double> regret_;
    int cursor_ = 0;

    double at(int i, int j) const { return double(cost[std::size_t(i) * columns_ + j]); }

    void weigh() {
        long double total = 0, other = 0;
        for (const long double s : supply) total += s;
        for (const long double t : demand) other += t;
        const long double most = std::max(total, other);
        int exponent;
        std::frexp(most, &exponent);  // most < 2^exponent
        int room = 2;
        while ((1 << room) < rows_ + 2) ++room;
        const int shift = 122 - room - exponent;
        unit_ = std::ldexp(1.0, -shift - room);
        left_.resize(nodes_);
        Mass sum = 0;
        const auto whole = [&](long double mass) { return std::max<Mass>(Mass(std::ldexp(mass, shift)), 1) << room; };
        int heaviest_row = 0, heaviest_column = rows_;
        for (int i = 0; i < rows_; ++i) {
            sum += left_[i] = whole(supply[i]);
            if (left_[i] > left_[heaviest_row]) heaviest_row = i;
        }
        for (int j = rows_; j < nodes_; ++j) {
            sum -= left_[j] = whole(demand[j - rows_]);
            if (left_[j] > left_[heaviest_column]) heaviest_column = j;
        }
        if (sum > 0) left_[heaviest_column] += sum;  // the two sums differ by the rounding of the measures
        else left_[heaviest_row] -= sum;
        excess_ = (sum > 0 ? sum : -sum) + rows_ + 1;
        uneven_ = double(sum > 0 ? sum : -sum) * unit_;
        root_ = heaviest_row;
        mass_.resize(nodes_);
        for (int v = 0; v < nodes_; ++v) mass_[v] = double(left_[v]) * unit_;
        for (int i = 0; i < rows_; ++i) left_[i] += 1;
        left_[nodes_ - 1] += rows_;
    }

    void start() {
        regret_.resize(columns_), order_.resize(columns_);
        for (int j = 0; j < columns_; ++j) {
            double best = std::numeric_limits<double>::infinity(), second = best;
            for (int i = 0; i < rows_; ++i) {
                const double c = at(i, j);
                if (c < best) second = best, best = c;
                else if (c < second) second = c;
            }
            regret_[j] = rows_ > 1 ? second - best : 0, order_[j] = j;
        }
        if (rows_ > 1) std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return regret_[a] > regret_[b]; });
        arcs_.clear();
        for (const int j : order_) {
            Mass missing = left_[rows_ + j];
            while (missing > 0) {
                int best = -1;
                for (int i = 0; i < rows_; ++i)
                    if (left_[i] > 0 && (best < 0 || at(i, j) < at(best, j))) best = i;
                const Mass moved = std::min(left_[best], missing);
                left_[best] -= moved, missing -= moved;
                arcs_.push_back({best, j, moved});
            }
        }
        grow_tree();
    }

    // Parents from the arcs of the start, from the root down.
    void grow_tree() {
        parent_.assign(nodes_, -2), flow_.assign(nodes_, 0), depth_.assign(nodes_, 0), potential_.assign(nodes_, 0),
            loose_.assign(nodes_, 0), slack_.assign(nodes_, 0);
        first_.assign(nodes_, -1), next_.assign(nodes_, -1), before_.assign(nodes_, -1);
        degree_.assign(nodes_ + 1, 0);
        for (const Arc& arc : arcs_) ++degree_[arc.row + 1], ++degree_[rows_ + arc.column + 1];
        for (int v = 0; v < nodes_; ++v) degree_[v + 1] += degree_[v];
        order_.resize(arcs_.size() * 2);
        std::vector<int>& at_node = order_;
        stack_.assign(degree_.begin(), degree_.end() - 1);
        for (int k = 0; k < int(arcs_.size()); ++k) at_node[stack_[arcs_[k].row]++] = k, at_node[stack_[rows_ + arcs_[k].column]++] = k;
        stack_.assign(1, root_);
        parent_[root_] = -1;
        while (!stack_.empty()) {
            const int v = stack_.back();
            stack_.pop_back();
            for (int k = degree_[v]; k < degree_[v + 1]; ++k) {
                const Arc& arc = arcs_[at_node[k]];
                const int w = v < rows_ ? rows_ + arc.column : arc.row;
                if (parent_[w] != -2) continue;
                hang(w, v, arc.flow);
                stack_.push_back(w);
            }
        }
    }

    Cost cost_between(int v, int w) const {
        return v < rows_ ? cost[std::size_t(v) * columns_ + (w - rows_)] : cost[std::size_t(w) * columns_ + (v - rows_)];
    }

    void hang(int v, int under, Mass flow) {
        parent_[v] = under, flow_[v] = flow, depth_[v] = depth_[under] + 1;
        set_potential(v, under);
        before_[v] = -1, next_[v] = first_[under];
        if (first_[under] >= 0) before_[first_[under]] = v;
        first_[under] = v;
    }

    // Rounding must not make an arc look cheap, or pivots could go round in circles: pricing sees potentials that are lower by all
    // that rounding can have added on the way from the root.
    void set_potential(int v, int under) {
        const Cost c = cost_between(v, under), above = potential_[under];
        potential_[v] = c - above;
        slack_[v] = slack_[under] + std::numeric_limits<Cost>::epsilon() * (c + std::abs(above));
        loose_[v] = potential_[v] - 2 * slack_[v];
    }

    void cut(int v) {
        const int under = parent_[v];
        if (before_[v] >= 0) next_[before_[v]] = next_[v];
        else first_[under] = next_[v];
        if (next_[v] >= 0) before_[next_[v]] = before_[v];
    }

    // min over j of c[j] - v[j] - own, or 0; in lanes, so that the compiler may use vectors for floats too
    static Cost lowest_of(const Cost* c, const Cost* v, int count, Cost own) {
        constexpr int LANES = 16;
        Cost lane[LANES] = {};
        int j = 0;
        for (; j + LANES <= count; j += LANES)
            for (int k = 0; k < LANES; ++k) {
                const Cost reduced = Cost(c[j + k] - v[j + k] - own);
                lane[k] = reduced < lane[k] ? reduced : lane[k];
            }
        Cost lowest = 0;
        for (; j < count; ++j) lowest = std::min(lowest, Cost(c[j] - v[j] - own));
        for (const Cost low : lane) lowest = std::min(lowest, low);
        return lowest;
    }

    // The cheapest arc of some rows, from the row after the last ones on; all rows are looked at before it says there is none.
    bool price(int& row, int& column) {
        const std::int64_t all = std::int64_t(rows_) * columns_;
        const std::int64_t block = std::max<std::int64_t>(1024, std::int64_t(8 * std::sqrt(double(all))));
        double best = 0;
        row = -1;
        std::int64_t seen = 0;
        for (int looked = 0; looked < rows_; ++looked) {
            const int i = cursor_;
            cursor_ = cursor_ + 1 == rows_ ? 0 : cursor_ + 1;
            const Cost* c = cost.data() + std::size_t(i) * columns_;
            const Cost* v = loose_.data() + rows_;
            const Cost own = loose_[i], lowest = lowest_of(c, v, columns_, own);
            if (double(lowest) < best) {
                int j = 0;
                while (Cost(c[j] - v[j] - own) != lowest) ++j;
                best = double(lowest), row = i, column = j;
            }
            seen += columns_;
            if (row >= 0 && seen >= block) return true;
        }
        return row >= 0;
    }

    void pivot_all() {
        cursor_ = 0;
        const std::int64_t limit = 1000 + 200 * std::int64_t(nodes_);
        int i = 0, j = 0;
        for (std::int64_t k = 0; price(i, j); ++k) {
            if (k == limit) {
                stalled = true;
                return;
            }
            pivot(i, rows_ + j);
        }
    }

    // On the way up from i flow falls on the edges above rows, on the way up from j on those above columns.
    void pivot(int i, int j) {
        int a = i, b = j, out = -1;
        bool from_i = true;
        Mass least = 0;
        while (a != b) {
            if (depth_[a] >= depth_[b]) {
                if (a < rows_ && (out < 0 || flow_[a] < least)) out = a, least = flow_[a], from_i = true;
                a = parent_[a];
            } else {
                if (b >= rows_ && (out < 0 || flow_[b] < least)) out = b, least = flow_[b], from_i = false;
                b = parent_[b];
            }
        }
        const int join = a;
        for (int v = i; v != join; v = parent_[v]) flow_[v] += v < rows_ ? -least : least;
        for (int v = j; v != join; v = parent_[v]) flow_[v] += v < rows_ ? least : -least;
        // the part under `out` hangs under the other end of the new edge from now on
        int v = from_i ? i : j, under = from_i ? j : i;
        const int top = v;
        Mass flow = least;
        for (bool last = false; !last;) {
            last = v == out;
            const int above = parent_[v];
            const Mass its = flow_[v];
            cut(v);
            hang(v, under, flow);
            under = v, v = above, flow = its;
        }
        stack_.assign(1, top);
        while (!stack_.empty()) {
            const int w = stack_.back();
            stack_.pop_back();
            for (int child = first_[w]; child >= 0; child = next_[child]) {
                depth_[child] = depth_[w] + 1;
                set_potential(child, w);
                stack_.push_back(child);
            }
        }
    }

    // What it takes off the dual value to make the potentials feasible: each arc that rounding leaves too cheap lowers the lighter
    // of its ends.
    double mend() {
        fix_.assign(nodes_, 0);
        bool any = false;
        for (int i = 0; i < rows_; ++i) {
            const Cost* c = cost.data() + std::size_t(i) * columns_;
            if (double(lowest_of(c, potential_.data() + rows_, columns_, potential_[i])) >= 0) continue;
            any = true;
            for (int j = 0; j < columns_; ++j) {
                const double short_of = double(potential_[i] + potential_[rows_ + j] - c[j]);
                const int lighter = mass_[i] < mass_[rows_ + j] ? i : rows_ + j;
                if (short_of > fix_[lighter]) fix_[lighter] = short_of;
            }
        }
        double taken = 0;
        for (int v = 0; any && v < nodes_; ++v) taken += fix_[v] * mass_[v];
        return taken;
    }

    void sum_up() {
        double loose = mend(), lost = 0;
        each_flow([&](const Flow& f) {
            const double c = at(f.row, f.column);
            if (c >= far) {
                lost += f.amount;
            } else {
                value += f.amount * c;
                loose +=
                    f.amount *
                    std::abs(double(cost[std::size_t(f.row) * columns_ + f.column] - potential_[f.row] - potential_[rows_ + f.column]));
            }
        });
        stuck = lost > double(excess_) * unit_ + nodes_ * rounded + STRAY;  // each mass is rounded
        const double rounding = (nodes_ + 8) * std::numeric_limits<double>::epsilon();
        gap = loose + rounding * value + (uneven_ + rounded + lost) * largest;
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA
