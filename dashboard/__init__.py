"""The Streamlit dashboard: `streamlit run dashboard/app.py`. It shows runs through `tracer`."""
