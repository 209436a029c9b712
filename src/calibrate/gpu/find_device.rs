//! The devices of this machine.

use std::fmt;

use thiserror::Error;

use super::device::{Device, DeviceKind, Identity};

/// A way to a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// NVIDIA's driver, found at run time.
    Cuda,
    /// Vulkan, Metal or Direct3D 12.
    Wgpu,
}

impl Backend {
    /// In the order in which they are tried.
    const ALL: [Self; 2] = [Self::Cuda, Self::Wgpu];

    #[cfg(not(all(feature = "cuda", feature = "wgpu")))]
    fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
        }
    }

    /// Devices in the driver's order, or why there are none.
    fn list(self) -> Result<Vec<Identity>, String> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda => super::cuda::list(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => super::wgpu_device::list(),
            #[cfg(not(feature = "cuda"))]
            Self::Cuda => Err(self.not_built_in()),
            #[cfg(not(feature = "wgpu"))]
            Self::Wgpu => Err(self.not_built_in()),
        }
    }

    #[cfg(not(all(feature = "cuda", feature = "wgpu")))]
    fn not_built_in(self) -> String {
        let name = self.name();
        format!("kvsim was built without it; build it in with `cargo build --release --features {name}`")
    }

    fn open(self, index: usize) -> Result<Box<dyn Device>, String> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda => Ok(Box::new(super::cuda::CudaDevice::open(index)?)),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Ok(Box::new(super::wgpu_device::WgpuDevice::open(index)?)),
            #[cfg(not(feature = "cuda"))]
            Self::Cuda => Err(format!("device {index}: {}", self.not_built_in())),
            #[cfg(not(feature = "wgpu"))]
            Self::Wgpu => Err(format!("device {index}: {}", self.not_built_in())),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "CUDA",
            Self::Wgpu => "wgpu (Vulkan, Metal, Direct3D 12)",
        })
    }
}

/// No GPU was found; what each backend said.
#[derive(Debug, Error)]
#[error("no GPU was found to calibrate{}", .reasons.iter().map(|r| format!("\n  {r}")).collect::<String>())]
pub struct NoDevice {
    reasons: Vec<String>,
}

/// Every device of the wanted backends, with its place there.
pub fn list_devices(wanted: Option<Backend>) -> (Vec<(Backend, usize, Identity)>, Vec<String>) {
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for backend in Backend::ALL.into_iter().filter(|backend| wanted.is_none_or(|wanted| wanted == *backend)) {
        match backend.list() {
            Ok(devices) if devices.is_empty() => reasons.push(format!("{backend}: the driver has no device")),
            Ok(devices) => {
                found.extend(devices.into_iter().enumerate().map(|(i, identity)| (backend, i, identity)));
            }
            Err(reason) => reasons.push(format!("{backend}: {reason}")),
        }
    }
    (found, reasons)
}

/// Opens a device: the one at `index` of those that can be used, in the order of [`list_devices`].
/// Renderers on the CPU count only if `software_too`, since their times mean nothing.
///
/// # Errors
/// [`NoDevice`] with what each backend said.
pub fn find_device(
    wanted: Option<Backend>,
    index: usize,
    software_too: bool,
) -> Result<Box<dyn Device>, NoDevice> {
    let (found, mut reasons) = list_devices(wanted);
    let (usable, software): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(_, _, identity)| software_too || identity.kind == DeviceKind::Gpu);
    reasons.extend(software.iter().map(|(backend, _, identity)| {
        format!("{backend}: {} computes on the CPU; its times would say nothing about a GPU", identity.name)
    }));
    let Some((backend, place, _)) = usable.get(index) else {
        if !usable.is_empty() {
            reasons.push(format!("there are {} devices, counted from 0; there is no {index}", usable.len()));
        }
        return Err(NoDevice { reasons });
    };
    backend.open(*place).map_err(|error| NoDevice { reasons: vec![format!("{backend}: {error}")] })
}
