//! Which host terms a profile gets that is fitted to kernels: no table of kernels tells them.

use std::error::Error;
use std::fmt;
use std::path::Path;

use super::{ProfileName, wrong_use};
use crate::calibrate::CalibrateError;
use crate::catalog::Gpu;
use crate::cost::Profile;
use crate::cost::host::HostLaw;
use crate::text_file::read_text;

/// Host terms, and whose they are.
#[derive(Clone)]
pub(super) struct HostTerms {
    pub law: HostLaw,
    origin: String,
}

impl fmt::Display for HostTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

impl HostTerms {
    /// Those of the profile that is `given`; else of the file that is `replaced`, if it is a profile of
    /// `gpu`; else of the built-in profile.
    pub fn choose(gpu: &Gpu, given: Option<&str>, replaced: &Path) -> Result<Self, Box<dyn Error>> {
        if let Some(given) = given {
            let path = match ProfileName::parse(given)? {
                ProfileName::Gpu(gpu) => return Self::built_in(gpu),
                ProfileName::File(path) => path,
            };
            let text = read_text(path)?;
            let wrong = |source| CalibrateError::Profile { path: path.to_owned(), source: Box::new(source) };
            let (_, law) = Profile::host_terms_of(&text).map_err(wrong)?;
            return Ok(Self { law, origin: format!("those of {}", path.display()) });
        }
        if replaced.exists() {
            let name = replaced.display();
            let text = read_text(replaced)?;
            let (of_gpu, law) = Profile::host_terms_of(&text).map_err(|error| {
                let problem = format!("--out {name} exists, and its host terms cannot be kept: {error}");
                wrong_use(problem, "give another file, or the host terms with --host PROFILE")
            })?;
            if of_gpu == gpu.name {
                return Ok(Self { law, origin: format!("kept from {name}, which was there") });
            }
        }
        Self::built_in(gpu)
    }

    fn built_in(gpu: &Gpu) -> Result<Self, Box<dyn Error>> {
        let law = Profile::built_in(gpu)?.host;
        Ok(Self { law, origin: format!("those of the built-in profile of {}", gpu.name) })
    }
}
