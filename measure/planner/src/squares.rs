//! Least squares with three unknowns, none of which may be negative.

/// One equation: factors of the unknowns, result, and weight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Equation {
    pub factors: [f64; 3],
    pub result: f64,
    pub weight: f64,
}

/// Returns the unknowns that fit `equations` best. `sets` lists the sets of unknowns that may be nonzero
/// (such as `[true, true, false]`). The set with the smallest error wins; a later one must be better by a
/// millionth.
pub(crate) fn solve(equations: &[Equation], sets: &[[bool; 3]]) -> Option<[f64; 3]> {
    let mut best: Option<(f64, [f64; 3])> = None;
    for set in sets {
        let Some(unknowns) = solve_set(equations, set) else { continue };
        let error = error(equations, &unknowns);
        if best.is_none_or(|(least, _)| error < least * (1.0 - 1e-6) - 1e-15) {
            best = Some((error, unknowns));
        }
    }
    best.map(|(_, unknowns)| unknowns)
}

/// Returns the weighted sum of squared errors.
pub(crate) fn error(equations: &[Equation], unknowns: &[f64; 3]) -> f64 {
    let off = |one: &Equation| one.factors.iter().zip(unknowns).map(|(f, u)| f * u).sum::<f64>() - one.result;
    equations.iter().map(|one| one.weight * off(one).powi(2)).sum()
}

/// Solves the normal equations of the unknowns in `set` by Gauss elimination; `None` if they are
/// underdetermined or an unknown is negative.
fn solve_set(equations: &[Equation], set: &[bool; 3]) -> Option<[f64; 3]> {
    let chosen: Vec<usize> = (0..3).filter(|&i| set[i]).collect();
    let n = chosen.len();
    if equations.len() < n {
        return None;
    }
    let sum = |of: &dyn Fn(&Equation) -> f64| equations.iter().map(|one| one.weight * of(one)).sum::<f64>();
    // Columns are scaled to 1, to detect nearly singular systems.
    let scale: Vec<f64> = chosen.iter().map(|&i| sum(&|one| one.factors[i].powi(2)).sqrt()).collect();
    if scale.iter().any(|scale| !scale.is_normal()) {
        return None;
    }
    let mut rows = vec![vec![0.0; n + 1]; n];
    for (row, &i) in chosen.iter().enumerate() {
        for (column, &k) in chosen.iter().enumerate() {
            rows[row][column] = sum(&|one| one.factors[i] * one.factors[k]) / scale[row] / scale[column];
        }
        rows[row][n] = sum(&|one| one.factors[i] * one.result) / scale[row];
    }
    for pivot in 0..n {
        let largest = (pivot..n).max_by(|&a, &b| rows[a][pivot].abs().total_cmp(&rows[b][pivot].abs()))?;
        rows.swap(pivot, largest);
        if rows[pivot][pivot].abs() < 1e-9 {
            return None;
        }
        for other in (0..n).filter(|&other| other != pivot) {
            let factor = rows[other][pivot] / rows[pivot][pivot];
            let subtracted: Vec<f64> =
                rows[other].iter().zip(&rows[pivot]).map(|(a, b)| a - factor * b).collect();
            rows[other] = subtracted;
        }
    }
    let mut unknowns = [0.0; 3];
    for (row, &i) in chosen.iter().enumerate() {
        unknowns[i] = rows[row][n] / rows[row][row] / scale[row];
    }
    unknowns.iter().all(|u| u.is_finite() && *u >= 0.0).then_some(unknowns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [[bool; 3]; 4] =
        [[true, false, false], [true, true, false], [true, false, true], [true, true, true]];

    fn equations(of: impl Fn(f64) -> f64) -> Vec<Equation> {
        let one = |x: f64| Equation { factors: [1.0, x, x * x], result: of(x), weight: 1.0 };
        [0.0, 1.0, 2.0, 5.0].map(one).to_vec()
    }

    #[test]
    fn finds_the_solution() {
        let found = solve(&equations(|x| 3.0 + 2.0 * x + 0.5 * x * x), &ALL).unwrap();
        for (found, wanted) in found.into_iter().zip([3.0, 2.0, 0.5]) {
            assert!((found - wanted).abs() < 1e-9);
        }
    }

    #[test]
    fn no_unknown_is_negative() {
        let found = solve(&equations(|x| 10.0 - 0.5 * x), &ALL).unwrap();
        assert!(found.iter().all(|u| *u >= 0.0) && found[0] > 5.0, "{found:?}");
    }

    #[test]
    fn underdetermined_systems_have_no_solution() {
        assert_eq!(solve(&[], &ALL), None);
        let twice = [equations(|x| x)[1]; 2];
        assert!(solve(&twice, &[[true, true, false]]).is_none(), "repeating an equation adds nothing");
    }
}
