//! Clocks, temperature and throttling, by NVIDIA's management library, where it is found.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};

use crate::calibrate::gpu::device::Telemetry;

pub(super) struct Monitor {
    /// The library, and the device's address on the PCI bus.
    nvml: Option<(Nvml, String)>,
}

impl Monitor {
    pub fn new(pci_bus_id: Option<String>) -> Self {
        Self { nvml: Nvml::init().ok().zip(pci_bus_id) }
    }

    pub fn telemetry(&self) -> Telemetry {
        let device = self.nvml.as_ref().and_then(|(nvml, id)| nvml.device_by_pci_bus_id(id.as_str()).ok());
        let Some(device) = device else { return Telemetry::default() };
        let reasons = device.current_throttle_reasons().ok();
        Telemetry {
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            power_w: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
            throttle_reasons: reasons
                .map(|reasons| {
                    let names = reasons.iter_names().map(|(name, _)| name.to_lowercase());
                    // Idle clocks between launches slow nothing down.
                    names.filter(|name| name != "gpu_idle" && name != "none").collect()
                })
                .unwrap_or_default(),
        }
    }

    /// Says which other processes compute on the device.
    pub fn others(&self) -> Option<String> {
        let (nvml, id) = self.nvml.as_ref()?;
        let processes = nvml.device_by_pci_bus_id(id.as_str()).ok()?.running_compute_processes().ok()?;
        let own = std::process::id();
        let others: Vec<String> = processes
            .iter()
            .filter(|process| process.pid != own)
            .map(|process| process.pid.to_string())
            .collect();
        (!others.is_empty()).then(|| format!("process {}", others.join(", ")))
    }
}
