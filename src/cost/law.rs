//! What every operation's law has in common: numbers that a fit finds within bounds.

/// One number of a law: where a fit starts, the bounds it stays in, and the value that switches the
/// term off where a kernel does not have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    pub name: &'static str,
    pub start: f64,
    pub low: f64,
    pub high: f64,
    pub neutral: f64,
}

/// The law of one operation on one GPU: what is known of the kernel, and fitted numbers.
pub trait Law: Clone + Send + Sync {
    /// In the order of [`Self::values`].
    const PARAMETERS: &'static [Parameter];

    fn values(&self) -> Vec<f64>;

    /// The same kernel with other numbers, one for each parameter.
    fn with_values(&self, values: &[f64]) -> Self;
}

/// Declares a law's struct: in brackets what is known of the kernel and not fitted, then lines
/// `name = start in [low, high] else neutral`.
macro_rules! law {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident[$( $kernel:ident: $Kernel:ty ),*] {
            $( $(#[$field_meta:meta])*
               $field:ident = $start:literal in [$low:literal, $high:literal] else $neutral:literal, )*
        }
    ) => {
        #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $(#[$meta])*
        pub struct $Name {
            $( pub $kernel: $Kernel, )*
            $( $(#[$field_meta])* pub $field: f64, )*
        }

        impl $Name {
            /// A kernel with every term off.
            pub const fn neutral($( $kernel: $Kernel, )*) -> Self {
                Self { $( $kernel, )* $( $field: $neutral, )* }
            }
        }

        impl $crate::cost::law::Law for $Name {
            const PARAMETERS: &'static [$crate::cost::law::Parameter] = &[
                $( $crate::cost::law::Parameter {
                    name: stringify!($field),
                    start: $start,
                    low: $low,
                    high: $high,
                    neutral: $neutral,
                }, )*
            ];

            fn values(&self) -> Vec<f64> {
                vec![$( self.$field, )*]
            }

            fn with_values(&self, values: &[f64]) -> Self {
                let mut values = values.iter().copied();
                Self {
                    $( $kernel: self.$kernel, )*
                    // A missing value switches the term off.
                    $( $field: values.next().unwrap_or($neutral), )*
                }
            }
        }
    };
}

pub(super) use law;

/// Where a benchmark's operands are when a kernel starts. Timed again and again, small operands stay
/// in the L2; between two layers of a model the weights of the others have passed through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2 {
    Warm,
    Cold,
}

impl L2 {
    /// How many times faster than memory `bytes` are read, if a warm L2 of `l2_bytes` is `speedup`
    /// times as fast and holds them up to `share` of its size.
    pub(super) fn speedup(self, bytes: f64, l2_bytes: f64, speedup: f64, share: f64) -> f64 {
        if self == Self::Cold || speedup <= 1.0 {
            return 1.0;
        }
        1.0 + (speedup - 1.0) / (1.0 + (bytes / (share * l2_bytes)).powi(4))
    }
}

/// The factor by which a kernel over `rows` slows down as what they move outgrows the caches and the GPU
/// nears its power limit: from 2,048 rows on by `share` for each doubling, up to two and a half.
pub(super) fn tall(rows: f64, share: f64) -> f64 {
    const FROM_ROWS: f64 = 2048.0;
    if rows <= FROM_ROWS {
        return 1.0;
    }
    1.0 + share * (rows / FROM_ROWS).log2().min(2.5)
}

/// Waves of `tiles` over `sms`: at least one, and between fraction and whole number by `share`.
pub(super) fn waves(tiles: f64, sms: f64, share: f64) -> f64 {
    let waves = tiles / sms;
    if waves <= 1.0 { 1.0 } else { (1.0 - share) * waves + share * waves.ceil() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_l2_helps_only_what_it_holds() {
        assert_eq!(L2::Cold.speedup(1.0, 100.0, 3.0, 0.5), 1.0);
        assert!(L2::Warm.speedup(1.0, 100.0, 3.0, 0.5) > 2.99);
        assert_eq!(L2::Warm.speedup(50.0, 100.0, 3.0, 0.5), 2.0);
        assert!(L2::Warm.speedup(5000.0, 100.0, 3.0, 0.5) < 1.01);
    }

    #[test]
    fn whole_waves_are_counted_by_share() {
        assert_eq!(waves(50.0, 100.0, 0.7), 1.0);
        assert_eq!(waves(150.0, 100.0, 0.0), 1.5);
        assert_eq!(waves(150.0, 100.0, 1.0), 2.0);
        assert_eq!(waves(150.0, 100.0, 0.5), 1.75);
    }

    #[test]
    fn tall_products_slow_down_to_a_limit() {
        assert_eq!(tall(2048.0, 0.1), 1.0);
        assert!((tall(8192.0, 0.1) - 1.2).abs() < 1e-12);
        assert!((tall(1e6, 0.1) - 1.25).abs() < 1e-12);
    }
}
