// The part of a network that a pair is solved on first, in small matrices of its own: the nodes at which the measures differ
// most, on the distances between them. Its optimal tree leaves half of the long pivots of the whole, and its own are short.
#pragma once
#include "greedy.hpp"
#include "simplex.hpp"

namespace geoattn::GEOATTN_ISA {

template <int WORDS, int V, bool PART = false> class Cuts;

template <int WORDS, int V> struct FewNodes {
    Network net;
    Cuts<WORDS, V, true> solver;
    Row<std::int64_t> supply, nothing;
    std::vector<std::int16_t> number;  // of a class of the whole network, -1 if it is not in the part

    explicit FewNodes(const Network& whole) : net(part_of(whole)), solver(net), supply(net.n), nothing(net.n, 0), number(whole.n) {}

    // The first nodes of an order. What the others give or take, or half of it, is left to the nearest of them: without it the
    // pivots of the whole are a third more, and longer. The root takes what is missing in the balance.
    template <class Order> void choose(const Network& whole, const Order& order, const std::int64_t* supplies) {
        std::fill(number.begin(), number.end(), std::int16_t(-1));
        int* members = net.members.data();
        for (int a = 0; a < net.n; ++a) {
            const int v = members[a] = order.place_of(a);
            number[v] = std::int16_t(a);
            supply[a] = supplies[v];
            const std::int16_t* row = whole.rough_between.data() + v * whole.rough_stride;
            std::int16_t *own = net.rough_out.data() + a * 16 * V, *column = net.rough_out.data() + a;
            for (int b = 0; b < a; ++b) own[b] = column[b * 16 * V] = row[members[b]];
        }
        for (int k = whole.near.empty() ? whole.n : net.n; k < whole.n; ++k) {
            const int v = order.place_of(k);
            const std::uint16_t* near = &whole.near[std::size_t(v) * Network::NEAR];
            int nearest = -1;
            for (int i = Network::NEAR - 1; i >= 0; --i) nearest = number[near[i]] >= 0 ? number[near[i]] : nearest;
            if (nearest >= 0) supply[nearest] += supplies[v] >> whole.halved;
        }
        solver.begin(supplies_of());
    }

    Supplies<std::int64_t> supplies_of() const { return {supply.data(), nothing.data(), 0, 0, 0}; }

    // From the tree that has grown; its optimal tree, parents first, in names of the whole.
    void solve(std::vector<Branch>& tree, double negligible, const Stop& stop) {
        if (solver.solve(supplies_of(), 0, negligible, stop) != Outcome::optimal) return;
        solver.from_root([&](double length, int node, int parent, bool out) {
            tree.push_back({length, net.members[node], net.members[parent], out});
        });
    }

    static Network part_of(const Network& whole) {
        Network part;
        part.whole = &whole;
        part.n = whole.few;
        part.members.resize(part.n);
        part.warm = false;
        part.reach = whole.reach;
        part.rough_scale = whole.rough_scale;
        part.rough_out.assign(std::size_t(std::max(part.n, 65)) * 16 * V, 32767);
        for (int a = 0; a < part.n; ++a) part.rough_out[a * 16 * V + a] = 0;
        return part;
    }
};

}  // namespace geoattn::GEOATTN_ISA
