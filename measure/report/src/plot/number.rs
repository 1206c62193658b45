//! Numbers in JSON, which has no NaN and infinities: they are written as and read from `null`.

use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.serialize_none() }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Points as `[[x, y], …]`.
pub(super) mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    fn finite(value: f64) -> Option<f64> {
        value.is_finite().then_some(value)
    }

    pub(crate) fn serialize<S: Serializer>(pairs: &[(f64, f64)], serializer: S) -> Result<S::Ok, S::Error> {
        let pairs: Vec<_> = pairs.iter().map(|&(x, y)| (finite(x), finite(y))).collect();
        pairs.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(f64, f64)>, D::Error> {
        let pairs: Vec<(Option<f64>, Option<f64>)> = Vec::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|(x, y)| (x.unwrap_or(f64::NAN), y.unwrap_or(f64::NAN))).collect())
    }
}

/// A list of numbers.
pub(super) mod row {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(row: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        let row: Vec<_> = row.iter().map(|&value| value.is_finite().then_some(value)).collect();
        row.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let row: Vec<Option<f64>> = Vec::deserialize(deserializer)?;
        Ok(row.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
    }
}

/// Points as `[[x, low, high], …]`.
pub(super) mod triples {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        rows: &[(f64, f64, f64)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let finite = |value: f64| value.is_finite().then_some(value);
        let rows: Vec<_> =
            rows.iter().map(|&(x, low, high)| (finite(x), finite(low), finite(high))).collect();
        rows.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(f64, f64, f64)>, D::Error> {
        let rows: Vec<(Option<f64>, Option<f64>, Option<f64>)> = Vec::deserialize(deserializer)?;
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        Ok(rows.into_iter().map(|(x, low, high)| (number(x), number(low), number(high))).collect())
    }
}
