"""The pages of the methods hold what each paper minimises, equation by equation."""

from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "methods"
OBJECTIVES = {  # equation of the paper: what must stand beside its number
    "contrastive": {
        7: "G(c, I) = ln p_m(c | I) - ln p_n(c | I)",
        8: "h(c, I) = r_ν(G(c, I)),   r_ν(z) = 1 / (1 + ν e^-z)",
        9: "Σ_t ln h(c_t, I_t) + Σ_t ln(1 - h(c_/t, I_t))",
        10: "J(θ) = 1/K · 1/T_m · Σ_k L(θ; X, Y_k)",
    },
    "jran": {1: "L(θ) = − Σ_i Σ_t log p(x_{i,t} | I_i, x_{i,1:t−1}; θ)"},
    "pos-scan": {
        4: "v_i·e_t / (‖v_i‖ ‖e_t‖)",
        5: "α_it = exp(τ s̄_it) / Σ_i exp(τ s̄_it)",
        6: "Σ_t R(e_t, a_t) / n",
        7: "[m − S(I, T) + S(I, T̂)]₊ + [m − S(I, T) + S(Î, T)]₊",
        8: "Σ_t 1[y*_t is a noun] R(e_t, a_t) / Σ_t 1[y*_t is a noun]",
        15: "−log p(y*_t | y*_1:t−1) + λ₁  1[y*_t is a noun] KL(β_t ‖ α_t)",
        16: "Σ_i −γ_ti log β_ti",
        17: "−E_{y ~ p_θ}[ r(y_1:n) ]",
        18: "−(r(yˢ_1:n) − r(ŷ_1:n)) ∇_θ log p_θ(yˢ_1:n)",
        19: "CIDEr(y_1:n) + λ₂ S(I, y_1:n)",
    },
    "r2m": {
        10: "L_XE = −Σ_t ln p(w_t | w_1 … w_{t−1}, v)",
        11: "L_S  = L_XE + β · L_rec,  L_rec = ‖v − ṽ‖²",
        12: "[m − S(I, C) + S(I′, C)]₊ + [m − S(I, C) + S(I, C′)]₊",
        13: "L_I = L_M + γ · L_rec",
    },
    "vsrn": {
        8: "L_M = [α − S(I, C) + S(I, Ĉ)]₊ + [α − S(I, C) + S(Î, C)]₊",
        9: "L_G = −Σ_t log p(y_t | y_<t, V*)",
        10: "L = L_M + L_G",
    },
}


@pytest.mark.parametrize("page", OBJECTIVES)
def test_a_page_holds_the_equations_of_its_objective(page):
    lines = (PAGES / f"{page}.md").read_text(encoding="utf-8").splitlines()
    for number, equation in OBJECTIVES[page].items():
        assert any(equation in line and f"Eq. {number}" in line for line in lines), (number, equation)
