//! Arithmetic with twice the digits of a float, for sums in which most digits cancel.

/// A number of 106 bits as the exact sum of two floats, after Dekker and Knuth.
#[derive(Clone, Copy)]
pub(crate) struct DoubleDouble {
    pub(crate) high: f64,
    low: f64,
}

impl DoubleDouble {
    /// Converts a float exactly.
    pub(crate) fn from(value: f64) -> DoubleDouble {
        DoubleDouble { high: value, low: 0.0 }
    }

    /// Normalises the sum of `large` and a much smaller `small`.
    fn joined(large: f64, small: f64) -> DoubleDouble {
        let high = large + small;
        DoubleDouble { high, low: small - (high - large) }
    }

    /// The sum.
    pub(crate) fn plus(self, other: DoubleDouble) -> DoubleDouble {
        let sum = self.high + other.high;
        let part = sum - self.high;
        let lost = (self.high - (sum - part)) + (other.high - part);
        DoubleDouble::joined(sum, lost + self.low + other.low)
    }

    /// The difference.
    pub(crate) fn minus(self, other: DoubleDouble) -> DoubleDouble {
        self.plus(DoubleDouble { high: -other.high, low: -other.low })
    }

    /// The product.
    pub(crate) fn times(self, other: DoubleDouble) -> DoubleDouble {
        let product = self.high * other.high;
        let lost = self.high.mul_add(other.high, -product);
        DoubleDouble::joined(product, lost + self.high * other.low + self.low * other.high)
    }

    /// The quotient.
    pub(crate) fn divided_by(self, divisor: f64) -> DoubleDouble {
        let quotient = self.high / divisor;
        let rest = self.minus(DoubleDouble::from(quotient).times(DoubleDouble::from(divisor)));
        DoubleDouble::joined(quotient, rest.high / divisor)
    }

    /// `self` times itself, `exponent` times.
    pub(crate) fn power(self, exponent: u64) -> DoubleDouble {
        let (mut result, mut square, mut left) = (DoubleDouble::from(1.0), self, exponent);
        while left > 0 {
            if left % 2 == 1 {
                result = result.times(square);
            }
            square = square.times(square);
            left /= 2;
        }
        result
    }
}
