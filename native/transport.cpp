// Graphs and pairs -> transport distances with certificates, and their gradients. Compiled once per instruction set.
#include <mutex>
#include <optional>

#include "job.hpp"
#include "tree.hpp"

namespace geoattn::GEOATTN_ISA {
namespace {

// Units of mass. Two thirds of a sign bit and, for the idle mass, a factor of eight are left free.
template <class Mass> constexpr double WHOLE = std::is_same_v<Mass, std::int64_t> ? 0x1p62 : 0x1p125;
// A bound of the error of kappa, relative to max(1, |kappa|), above which a pair is solved again in higher precision.
constexpr double GOOD_ENOUGH = 1e-11;

// Everything the pairs of one graph share.
struct Prepared {
    Matrix lengths, distances;
    std::vector<int> part, label;   // connected part of a node; its class in the part's network
    std::vector<Network> networks;  // one per part that some pair lies in
    std::vector<int> network_of_part;
};

int find(std::vector<int>& parent, int x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
}

// An order of the classes in which neighbours have similar measures: the next tree then needs few pivots. Greedy nearest
// neighbour in total variation; O(n^3) additions, which only many pairs repay.
std::vector<int> similar_order(const std::vector<int>& nodes, const double* measures, int n) {
    const int count = int(nodes.size());
    std::vector<int> order{0};
    std::vector<char> used(count, 0);
    used[0] = 1;
    while (int(order.size()) < count) {
        const double* last = measures + std::size_t(nodes[order.back()]) * n;
        double best = INF;
        int next = -1;
        for (int c = 0; c < count; ++c) {
            if (used[c]) continue;
            const double* row = measures + std::size_t(nodes[c]) * n;
            double sum[4] = {0, 0, 0, 0};
            int k = 0;
            for (; k + 4 <= n; k += 4)
                for (int l = 0; l < 4; ++l) sum[l] += std::fabs(last[k + l] - row[k + l]);
            for (; k < n; ++k) sum[0] += std::fabs(last[k] - row[k]);
            const double apart = (sum[0] + sum[1]) + (sum[2] + sum[3]);
            if (apart < best || next < 0) best = apart, next = c;
        }
        used[next] = 1;
        order.push_back(next);
    }
    return order;
}

Network build_network(const Prepared& p, const std::vector<int>& nodes, std::vector<int>& label, bool directed, int threads) {
    Network net;
    net.directed = directed;
    const Matrix& d = p.distances;
    for (int x : nodes) {  // merge nodes at distance 0 both ways
        int same = -1;
        for (int k = 0; k < int(net.members.size()) && same < 0; ++k)
            if (d[x][net.members[k]] == 0 && d[net.members[k]][x] == 0) same = k;
        if (same < 0) same = int(net.members.size()), net.members.push_back(x);
        label[x] = same;
    }
    net.n = int(net.members.size());
    net.out = Matrix(net.n);
    net.distances = Matrix(net.n);
    Matrix& between = net.distances;
    Matrix back(net.n);
    for (int x : nodes)
        for (int y : nodes) {
            const int a = label[x], b = label[y];
            if (a != b) net.out[a][b] = std::min(net.out[a][b], p.lengths[x][y]);
        }
    for (int a = 0; a < net.n; ++a)
        for (int b = 0; b < net.n; ++b) back[b][a] = between[a][b] = d[net.members[a]][net.members[b]];
    parallel_for(net.n > 256 ? threads : 1, net.n, [&](int a) {
        for (int b = 0; b < net.n; ++b) {
            double& edge = net.out[a][b];
            if (edge < INF && (edge > between[a][b] || matched(between[a], back[b], between.stride, edge))) edge = INF;
        }
    });
    double diameter = 0;
    for (int a = 0; a < net.n; ++a)
        for (int b = 0; b < net.n; ++b)
            if (between[a][b] < INF) diameter = std::max(diameter, between[a][b]);
    // Potentials follow the tree; only where every pair has a way back does the metric bound them.
    net.finish(directed ? diameter * net.n : diameter);
    return net;
}

Prepared prepare(const Job& job, std::int64_t g, int threads) {
    const int n = job.n;
    const std::size_t area = std::size_t(n) * n;
    const double *lengths = job.lengths + g * area, *measures = job.measures + g * area;
    Prepared p;
    p.lengths = Matrix(n);
    std::vector<int> parent(n);
    std::iota(parent.begin(), parent.end(), 0);
    for (int u = 0; u < n; ++u)
        for (int v = 0; v < n; ++v)
            if (u != v && lengths[std::size_t(u) * n + v] < INF) {
                p.lengths[u][v] = lengths[std::size_t(u) * n + v];
                parent[find(parent, u)] = find(parent, v);
            }
    p.distances = p.lengths;
    all_pairs(p.distances, job.directed, threads);

    p.part.assign(n, -1);
    p.label.assign(n, -1);
    std::vector<std::vector<int>> parts;
    std::vector<int> part_of_root(n, -1);
    for (int v = 0; v < n; ++v) {
        int& id = part_of_root[find(parent, v)];
        if (id < 0) id = int(parts.size()), parts.emplace_back();
        p.part[v] = id;
        parts[id].push_back(v);
    }
    p.network_of_part.assign(parts.size(), -1);
    const std::int64_t pairs = job.offsets[g + 1] - job.offsets[g];
    for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e) {
        const int id = p.part[job.pairs[2 * e]];
        if (p.network_of_part[id] >= 0) continue;
        std::vector<int>& nodes = parts[id];
        if (nodes.size() > 2 && nodes.size() <= 1024 && pairs >= 4 * std::int64_t(nodes.size())) {
            std::vector<int> order = similar_order(nodes, measures, n), sorted;
            for (int k : order) sorted.push_back(nodes[k]);
            nodes = sorted;
        }
        p.network_of_part[id] = int(p.networks.size());
        p.networks.push_back(build_network(p, nodes, p.label, job.directed, threads));
    }
    return p;
}

// The measure of a node on the classes of its network, as integers. What rounding leaves over goes to the node itself, so
// that no mass has to travel for it. Mass outside the network stays where it is: `solve_part` checks that it may.
template <class Mass>
void round_measure(const double* measure, const Prepared& p, int part, int node, int n, double whole, Mass* mass) {
    double outside = 0;
    Mass inside = 0;
    for (int v = 0; v < n; ++v) {
        if (p.part[v] != part) {
            outside += measure[v];
        } else {
            const Mass m = Mass(measure[v] * whole + 0.5);
            mass[p.label[v]] += m;
            inside += m;
        }
    }
    mass[p.label[node]] += Mass((1.0 - outside) * whole) - inside;
}

struct Pair {
    std::int64_t edge;
    int x, y;  // classes, for the order
};

// The measures of all nodes that the pairs name, rounded to units of one kind of mass.
template <class Mass> struct Masses {
    double whole;
    Mass idle;
    int classes;
    std::vector<Mass> data;

    Masses(const Job& job, std::int64_t g, const Prepared& p, int part, const std::vector<int>& named, int classes)
        : whole(job.idle > 0 ? WHOLE<Mass> / 8 : WHOLE<Mass>), idle(Mass(job.idle * whole)), classes(classes),
          data(named.size() * std::size_t(classes), 0) {
        const double* measures = job.measures + g * std::size_t(job.n) * job.n;
        for (std::size_t k = 0; k < named.size(); ++k)
            round_measure(measures + std::size_t(named[k]) * job.n, p, part, named[k], job.n, whole, &data[k * classes]);
    }
    const Mass* operator[](int slot) const { return &data[std::size_t(slot) * classes]; }
};

struct Answer {
    Outcome outcome;
    double w1 = NAN, excess = NAN;  // excess: a bound of w1 - optimum
};

template <class Tree, class Mass>
Answer answer(Tree& tree, const Network& net, const Masses<Mass>& masses, int from, int to, int source, int sink, double idle,
              const std::atomic<bool>& stop) {
    const Mass *m = masses[from], *l = masses[to];
    tree.reroot(source);
    Answer result{tree.solve(m, l, source, sink, masses.idle, stop)};
    if (result.outcome != Outcome::optimal) return result;
    double moved = idle * masses.whole;
    for (int v = 0; v < net.n; ++v) moved += std::max(0.0, as_double(m[v] - l[v]));
    result.w1 = tree.cost() / masses.whole;
    // Rounding may have put each class off by a unit, over the diameter at worst.
    result.excess = (tree.excess(moved) + net.n * net.reach) / masses.whole;
    return result;
}

template <int WORDS>
void solve_part(Job& job, std::int64_t g, const Prepared& p, int id, std::vector<Pair>& pairs, int threads) {
    const Network& net = p.networks[p.network_of_part[id]];
    const int n = job.n;
    const double* measures = job.measures + g * std::size_t(n) * n;
    std::vector<int> slot(n, -1), named;
    for (const Pair& q : pairs)
        for (int x : {job.pairs[2 * q.edge], job.pairs[2 * q.edge + 1]})
            if (slot[x] < 0) slot[x] = int(named.size()), named.push_back(x);
    const Masses<std::int64_t> masses(job, g, p, id, named, net.n);
    std::optional<Masses<Wide>> wide_masses;
    std::once_flag made;
    bool leaves = false;  // whether any measure has mass outside the network
    for (int x : named)
        for (int v = 0; v < n; ++v) leaves |= p.part[v] != id && measures[std::size_t(x) * n + v] > 0;

    // Neighbouring pairs share a measure: rows forth and back.
    std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
        if (a.x != b.x) return a.x < b.x;
        return a.x % 2 ? a.y > b.y : a.y < b.y;
    });
    const std::size_t chunk = 512;  // fixed: where a warm start begins must not depend on the threads
    parallel_for(threads, int((pairs.size() + chunk - 1) / chunk), [&](int c) {
        Tree<std::int64_t, WORDS, double> tree(net);
        std::optional<Tree<Wide, WORDS, Quad>> exact_tree;
        auto record = [&](const auto& t, std::int64_t e) {
            if (job.potentials)
                for (int v = 0; v < n; ++v) job.potentials[e * n + v] = p.part[v] == id ? t.potential(p.label[v]) : NAN;
            if (!job.trees) return;
            std::int32_t* row = job.trees + e * n;
            std::fill(row, row + n, -1);
            for (int v = 0; v < net.n; ++v) row[net.members[v]] = net.members[t.parent(v)] * 2 + t.falls(v);
        };
        for (std::size_t k = c * chunk; k < std::min(pairs.size(), (c + 1) * chunk); ++k) {
            if (job.stop.load(std::memory_order_relaxed)) return;
            const std::int64_t e = pairs[k].edge;
            const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
            job.done.fetch_add(1, std::memory_order_relaxed);
            bool stays = true;
            for (int v = 0; leaves && v < n; ++v)
                stays &= p.part[v] == id || measures[std::size_t(x) * n + v] == measures[std::size_t(y) * n + v];
            if (!stays) {
                job.status[e] = std::uint8_t(Status::unreachable);
                continue;
            }
            auto ask = [&](auto& t, const auto& m) {
                return answer(t, net, m, slot[x], slot[y], p.label[x], p.label[y], job.idle, job.stop);
            };
            Answer a = ask(tree, masses);
            const double good = GOOD_ENOUGH * std::max(job.denominator[e], a.w1);
            const bool again = a.outcome == Outcome::stalled || (a.outcome == Outcome::optimal && !(a.excess <= good));
            if (again) {
                std::call_once(made, [&] { wide_masses.emplace(job, g, p, id, named, net.n); });
                if (!exact_tree) exact_tree.emplace(net);
                a = ask(*exact_tree, *wide_masses);
            }
            if (a.outcome != Outcome::optimal) {
                job.status[e] = std::uint8_t(a.outcome == Outcome::unbounded ? Status::unreachable : Status::stalled);
                continue;
            }
            job.w1[e] = a.w1;
            job.gap[e] = a.w1 > 0 ? a.excess / a.w1 : 0.0;
            job.status[e] = std::uint8_t(Status::solved);
            if (again) record(*exact_tree, e);
            else record(tree, e);
        }
    });
}

void solve_graph(Job& job, std::int64_t g, int threads) {
    if (job.offsets[g] == job.offsets[g + 1]) return;
    const Prepared p = prepare(job, g, threads);
    std::vector<std::vector<Pair>> work(p.networks.size());
    for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e) {
        const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
        const double distance = p.distances[x][y], denominator = job.per_length ? p.lengths[x][y] : distance;
        job.distance[e] = distance;
        job.denominator[e] = denominator;
        Status status = Status::solved;
        if (!(distance < INF) || !(denominator < INF)) status = Status::unreachable;
        else if (denominator < job.floor) status = Status::below_floor;
        else if (distance == 0) status = Status::zero_distance;
        job.status[e] = std::uint8_t(status);
        if (status != Status::solved) {
            job.done.fetch_add(1, std::memory_order_relaxed);
            continue;
        }
        const int k = p.network_of_part[p.part[x]];
        work[k].push_back({e, p.label[x], p.label[y]});
    }
    for (std::size_t id = 0; id < p.network_of_part.size(); ++id) {
        const int k = p.network_of_part[id];
        if (k < 0 || work[k].empty()) continue;
        const int classes = p.networks[k].n;
        if (classes <= 64) solve_part<1>(job, g, p, int(id), work[k], threads);
        else if (classes <= 128) solve_part<2>(job, g, p, int(id), work[k], threads);
        else if (classes <= 256) solve_part<4>(job, g, p, int(id), work[k], threads);
        else solve_part<0>(job, g, p, int(id), work[k], threads);
    }
}

}  // namespace

void solve(Job& job) {
    const bool by_graph = job.graphs >= 2 * job.threads || job.n < 48;
    if (by_graph) {
        parallel_for(job.threads, int(job.graphs), [&](int g) {
            if (!job.stop.load(std::memory_order_relaxed)) solve_graph(job, g, 1);
        });
    } else {
        for (std::int64_t g = 0; g < job.graphs && !job.stop.load(); ++g) solve_graph(job, g, job.threads);
    }
}

void shortest_paths(double* distances, int n, bool directed, int threads) {
    Matrix d(n);
    for (int i = 0; i < n; ++i) std::copy(distances + std::size_t(i) * n, distances + std::size_t(i + 1) * n, d[i]);
    all_pairs(d, directed, threads);
    for (int i = 0; i < n; ++i) std::copy(d[i], d[i] + n, distances + std::size_t(i) * n);
}

namespace {

// The nodes of the tree's path from x to y, if it runs downhill all the way.
bool tree_path(const std::int32_t* tree, const std::vector<int>& depth, int x, int y, std::vector<int>& way) {
    std::vector<int> up{x}, down{y};
    while (up.back() != down.back()) {
        const bool from_x = depth[up.back()] >= depth[down.back()];
        std::vector<int>& side = from_x ? up : down;
        if ((tree[side.back()] & 1) == from_x) return false;  // downhill: towards the parent on x's side, away from it on y's
        side.push_back(tree[side.back()] / 2);
    }
    way = up;
    way.insert(way.end(), down.rbegin() + 1, down.rend());
    return true;
}

}  // namespace

// d kappa = -dW1 / D + W1 dD / D^2. dW1/dlength = |flow|, dW1/dmeasure = potential; dD/dlength = 1 along one shortest
// path (or on the edge itself). Where the optimum is not unique this is one generalised gradient.
void pull_back(const Backward& back) {
    const Job& job = *back.job;
    const int n = job.n;
    const std::size_t area = std::size_t(n) * n;
    parallel_for(job.threads, int(job.graphs), [&](int g) {
        if (job.offsets[g] == job.offsets[g + 1]) return;
        const Prepared p = prepare(job, g, 1);
        const Matrix &len = p.lengths, &d = p.distances;
        const double* measures = job.measures + g * area;
        double *to_lengths = back.lengths + g * area, *to_measures = back.measures + g * area;
        std::vector<double> flow(n), potential(n);
        std::vector<int> depth(n), order(n), count(n + 1);
        // classes of several nodes: the shortest edge between two of them, and a node's representative
        auto edge_between = [&](int u, int v) {
            const Network& net = p.networks[p.network_of_part[p.part[u]]];
            if (len[u][v] == net.out[p.label[u]][p.label[v]]) return std::size_t(u) * n + v;
            for (int a = 0; a < n; ++a)
                for (int b = 0; b < n; ++b)
                    if (p.part[a] == p.part[u] && p.part[b] == p.part[u] && p.label[a] == p.label[u] && p.label[b] == p.label[v] &&
                        len[a][b] == net.out[p.label[u]][p.label[v]])
                        return std::size_t(a) * n + b;
            return std::size_t(u) * n + v;
        };
        for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e) {
            const double up = back.upstream[e];
            if (up == 0 || job.status[e] != std::uint8_t(Status::solved)) continue;
            const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1], part = p.part[x];
            const Network& net = p.networks[p.network_of_part[part]];
            const std::int32_t* tree = job.trees + e * n;
            const double per_w1 = -up / job.denominator[e], per_d = up * job.w1[e] / (job.denominator[e] * job.denominator[e]);
            // parents before children
            std::fill(count.begin(), count.end(), 0);
            for (int v : net.members) depth[v] = -1;
            for (int v : net.members) {
                int steps = 0, a = v;
                for (; depth[a] < 0 && tree[a] / 2 != a; a = tree[a] / 2) ++steps;
                int at = (tree[a] / 2 == a ? 0 : depth[a]) + steps;
                for (a = v; depth[a] < 0; a = tree[a] / 2, --at) {
                    depth[a] = at, ++count[at];
                    if (tree[a] / 2 == a) break;
                }
            }
            for (int k = 0, place = 0; k <= n; ++k) {
                const int c = count[k];
                count[k] = place;
                place += c;
            }
            for (int v : net.members) order[count[depth[v]]++] = v;
            std::fill(flow.begin(), flow.end(), 0.0);
            for (int v = 0; v < n; ++v)
                if (p.part[v] == part) flow[net.members[p.label[v]]] += measures[std::size_t(x) * n + v] - measures[std::size_t(y) * n + v];
            flow[net.members[p.label[x]]] += job.idle;
            flow[net.members[p.label[y]]] -= job.idle;
            for (int k = net.n - 1; k > 0; --k) {
                const int v = order[k], a = tree[v] / 2;
                flow[a] += flow[v];
                const bool down = tree[v] & 1;  // potential falls from parent to v: flow a -> v
                to_lengths[down ? edge_between(a, v) : edge_between(v, a)] += per_w1 * std::fabs(flow[v]);
            }
            potential[order[0]] = 0;
            for (int k = 1; k < net.n; ++k) {
                const int v = order[k], a = tree[v] / 2;
                const bool down = tree[v] & 1;
                const double l = down ? net.out[p.label[a]][p.label[v]] : net.out[p.label[v]][p.label[a]];
                potential[v] = potential[a] + (down ? -l : l);
            }
            for (int v = 0; v < n; ++v) {
                if (p.part[v] != part) continue;
                const double slope = per_w1 * potential[net.members[p.label[v]]];
                to_measures[std::size_t(x) * n + v] += slope;
                to_measures[std::size_t(y) * n + v] -= slope;
            }
            if (job.per_length) {
                to_lengths[std::size_t(x) * n + y] += per_d;
                continue;
            }
            // The tree's own way from x to y where it is a shortest one: its terms then cancel against those of W1.
            const int origin = net.members[p.label[x]], goal = net.members[p.label[y]];
            std::vector<int> way{origin};
            std::vector<char> passed(n, 0);
            if (tree_path(tree, depth, origin, goal, way) && potential[origin] - potential[goal] >= d[origin][goal] * (1 - 1e-12)) {
                for (std::size_t k = 0; k + 1 < way.size(); ++k) to_lengths[edge_between(way[k], way[k + 1])] += per_d;
                continue;
            }
            for (int u = origin; u != goal;) {
                passed[u] = 1;
                int next = -1;
                double best = INF;
                for (int v : net.members) {
                    const double step = net.out[p.label[u]][p.label[v]] + d[v][goal];
                    if (!passed[v] && (step < best || (step == best && next >= 0 && d[v][goal] < d[next][goal]))) best = step, next = v;
                }
                to_lengths[edge_between(u, next)] += per_d;
                u = next;
            }
        }
    });
}

}  // namespace geoattn::GEOATTN_ISA
