// Lengths of one graph -> its connected parts, the classes of coinciding nodes, and the networks of the parts that matter.
#pragma once
#include <cmath>

#include "job.hpp"
#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

// Everything the pairs of one graph share.
struct Prepared {
    const double* lengths = nullptr;
    std::vector<int> part, label;   // connected part of a node; its class in the part's network
    std::vector<Network> networks;  // one per part that some pair lies in
    std::vector<int> network_of_part;
    bool leaves = false;  // some measure of a pair has mass outside the part of its node; all parts have networks then
};

inline int find(std::vector<int>& parent, int x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
}

// Nodes that are at distance 0 from each other, both ways, by number of their class, in the order of their first nodes.
inline std::vector<int> coinciding(const double* lengths, const std::vector<int>& nodes, int n) {
    const int count = int(nodes.size());
    std::vector<std::vector<int>> zero(count);
    bool any = false;
    for (int a = 0; a < count; ++a)
        for (int b = 0; b < count; ++b)
            if (a != b && lengths[std::size_t(nodes[a]) * n + nodes[b]] == 0) zero[a].push_back(b), any = true;
    std::vector<int> label(count);
    std::iota(label.begin(), label.end(), 0);
    if (!any) return label;
    // Whoever a node reaches over edges of length 0, and who reaches it, is where it is.
    std::vector<std::vector<int>> turned(count);
    for (int a = 0; a < count; ++a)
        for (int b : zero[a]) turned[b].push_back(a);
    const auto reached = [&](const std::vector<std::vector<int>>& edges, int from) {
        std::vector<char> seen(count, 0);
        std::vector<int> open{from};
        for (seen[from] = 1; !open.empty();) {
            const int a = open.back();
            open.pop_back();
            for (int b : edges[a])
                if (!seen[b]) seen[b] = 1, open.push_back(b);
        }
        return seen;
    };
    std::fill(label.begin(), label.end(), -1);
    int classes = 0;
    for (int a = 0; a < count; ++a) {
        if (label[a] >= 0) continue;
        label[a] = classes;
        if (!zero[a].empty() && !turned[a].empty()) {
            const std::vector<char> ahead = reached(zero, a), behind = reached(turned, a);
            for (int b = 0; b < count; ++b)
                if (ahead[b] && behind[b]) label[b] = classes;
        }
        ++classes;
    }
    return label;
}

// The classes of a part and the lengths between them.
inline void merge_nodes(const Prepared& p, const std::vector<int>& nodes, std::vector<int>& label, int n, Network& net) {
    const std::vector<int> class_of = coinciding(p.lengths, nodes, n);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
        label[nodes[k]] = class_of[k];
        if (class_of[k] == int(net.members.size())) net.members.push_back(nodes[k]);
    }
    net.n = int(net.members.size());
    if (net.n == n) {
        net.lengths = Lengths(p.lengths, n);
        return;
    }
    net.merged.assign(std::size_t(net.n) * net.n, INF);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
        const double* row = p.lengths + std::size_t(nodes[k]) * n;
        double* own = &net.merged[std::size_t(class_of[k]) * net.n];
        for (std::size_t j = 0; j < nodes.size(); ++j)
            if (class_of[j] != class_of[k]) own[class_of[j]] = std::min(own[class_of[j]], row[nodes[j]]);
    }
    net.lengths = Lengths(net.merged.data(), net.n);
}

// `to_solve`: with all that the solvers need, not only classes and lengths.
inline Prepared prepare(const Job& job, std::int64_t g, Crew& crew, bool to_solve = true) {
    const int n = job.n;
    Prepared p;
    p.lengths = job.lengths + std::size_t(g) * n * n;
    std::vector<int> parent(n);
    std::iota(parent.begin(), parent.end(), 0);
    for (int u = 0, apart = n; u < n && apart > 1; ++u)
        for (int v = 0; v < n && apart > 1; ++v) {
            if (!(p.lengths[std::size_t(u) * n + v] < INF)) continue;
            const int a = find(parent, u), b = find(parent, v);
            apart -= a != b;
            parent[a] = b;
        }
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
    p.networks.reserve(parts.size());
    const auto add_network = [&](int id) {
        if (p.network_of_part[id] >= 0) return;
        p.network_of_part[id] = int(p.networks.size());
        Network& net = p.networks.emplace_back();
        net.directed = job.directed;
        merge_nodes(p, parts[id], p.label, n, net);
        if (to_solve && net.n > 1) net.prepare(crew, job.stop);
    };
    std::vector<char> known(n, 0);
    for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e) {
        add_network(p.part[job.pairs[2 * e]]);
        if (parts.size() == 1 || p.leaves) continue;
        for (const int x : {job.pairs[2 * e], job.pairs[2 * e + 1]}) {
            if (known[x]) continue;
            known[x] = 1;
            const double* measure = job.measures + (std::size_t(g) * n + x) * n;
            for (int v = 0; v < n; ++v) p.leaves |= measure[v] > 0 && p.part[v] != p.part[x];
        }
    }
    for (std::size_t id = 0; p.leaves && id < parts.size(); ++id) add_network(int(id));
    return p;
}

}  // namespace geoattn::GEOATTN_ISA
